package main

import (
	"context"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"draftmill.dev/cluster/internal/cluster"

	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs maps a component's name to its entry point, which returns the exit code.
var programs = map[string]func(args []string) int{
	"etcd":                    etcd,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	// The kubelet installs the signal handler itself: a second one panics.
	"kubelet": component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": runKubectl,

	"up":            cluster.Up,
	"down":          cluster.Down,
	"status":        cluster.Status,
	"init":          cluster.Init,
	"control-plane": cluster.ControlPlane,
}

func component(newCommand func() *cobra.Command) func([]string) int {
	return func([]string) int { return cli.Run(newCommand()) }
}

func etcd(args []string) int {
	etcdmain.Main(append([]string{"etcd"}, args...))
	return 0
}

func runKubectl([]string) int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints the message and exits with kubectl's own code
	}
	return 0
}
