package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const requestTimeout = 5 * time.Second

// partNames are the programs of a whole cluster.
var partNames = []string{
	"containerd", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet",
}

func newClient(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = requestTimeout
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // no proxy knows our addresses
	return kubernetes.NewForConfig(config)
}

// healthy returns nil when the cluster does all that it is for: every part
// runs, the API answers, the kubelet reports a ready node with its GPUs, and a
// Service's name is resolved through the pod network.
func (n node) healthy(ctx context.Context, supervisor process, client kubernetes.Interface) error {
	if err := n.nodeReady(ctx, supervisor, client); err != nil {
		return err
	}
	return n.resolves(ctx, "kubernetes.default.svc.cluster.local.")
}

func (n node) nodeReady(ctx context.Context, supervisor process, client kubernetes.Interface) error {
	running := supervisor.children()
	for _, name := range partNames {
		if _, found := running[name]; !found {
			return fmt.Errorf("%s is not running", name)
		}
	}
	if err := apiReady(ctx, client); err != nil {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	// The node's status may be from before a crash; this asks the kubelet itself.
	err := client.CoreV1().RESTClient().Get().
		Resource("nodes").Name(n.config.nodeName()).SubResource("proxy").Suffix("healthz").Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("the kubelet does not answer: %w", err)
	}
	found, err := client.CoreV1().Nodes().Get(ctx, n.config.nodeName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the node is not registered: %w", err)
	}
	ready := slices.IndexFunc(found.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	})
	if ready < 0 || found.Status.Conditions[ready].Status != corev1.ConditionTrue {
		return errors.New("the node is not ready")
	}
	if gpus := found.Status.Allocatable[gpuResource]; gpus.String() != gpuCount {
		return errors.New("the node does not offer its GPUs yet")
	}
	return nil
}

func (n node) resolves(ctx context.Context, name string) error {
	resolver := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(n.config.dnsIP().String(), "53"))
		},
	}
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := resolver.LookupHost(limited, name); err != nil {
		return fmt.Errorf("the cluster's DNS does not answer: %w", err)
	}
	return nil
}

// defaultAccount returns nil once pods can be created: the controller manager has made their account.
func defaultAccount(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}
