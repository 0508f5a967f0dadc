package cluster

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
)

// stopGrace is how long pods may take to end on their own.
const stopGrace = 8 * time.Second

// Init is the first process of a cluster's namespaces. It waits until its
// standard input says that the link to the host is laid, starts the parts and
// keeps them running until it is told to end.
func Init(args []string) int {
	if len(args) != 1 || os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init is started by `up` alone")
		return 2
	}
	if err := runNode(state(args[0])); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

func runNode(s state) error {
	if err := resetEnvironment(); err != nil {
		return err
	}
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return errors.New("the command that starts the cluster ended early")
	}
	found, err := s.load()
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("%s does not exist", s.recordFile())
	}
	node := node{config: found.Config, state: s}
	if err := isolateMounts(s); err != nil {
		return err
	}
	if err := node.config.setUpNodeNetwork(); err != nil {
		return err
	}
	supervisor := newSupervisor(s)
	if err := node.boot(stopping, supervisor); err != nil && stopping.Err() == nil {
		return err
	}
	<-stopping.Done()
	log.Print("stopping")
	endPods(node.config.cgroup())
	return nil
}

// resetEnvironment leaves behind what the person's shell had: a proxy would be
// asked for the node's own addresses, and firewall tools may not be on the path.
func resetEnvironment() error {
	os.Clearenv()
	return errors.Join(
		os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
		os.Setenv("HOME", "/root"),
	)
}

// boot starts each part when those that it needs answer.
func (n node) boot(ctx context.Context, s *supervisor) error {
	plane := n.controlPlane()
	authority, err := plane.writeCertificates(n.config.Name)
	if err != nil {
		return err
	}
	client, err := newClient(n.state.kubeconfig())
	if err != nil {
		return err
	}
	s.keep(ctx, plane.etcd())
	s.keep(ctx, n.containerd())
	s.keep(ctx, plane.apiServer(authority))
	if err := waitFor(ctx, func() error { return apiReady(ctx, client) }); err != nil {
		return err
	}
	s.keep(ctx, plane.controllerManager(authority))
	s.keep(ctx, n.scheduler(plane))
	s.keep(ctx, n.proxy(plane))
	if err := waitFor(ctx, func() error { return accepts(n.state.containerdSocket()) }); err != nil {
		return err
	}
	s.keep(ctx, n.kubelet())
	go n.keepGPUs(ctx, client)
	log.Print("all parts are started")
	return nil
}

func (n node) controlPlane() controlPlane {
	return controlPlane{
		state:       n.state,
		address:     n.config.nodeIP(),
		port:        apiPort,
		serviceCIDR: n.config.ServiceCIDR,
		withNode:    true,
		audit:       true,
	}
}

// endPods asks the processes of all pods to end and waits for them. The kernel
// ends whatever is left, the parts among it, when this process does.
func endPods(cgroup string) {
	for _, pid := range processesBelow(cgroup) {
		_ = syscall.Kill(pid, syscall.SIGTERM) // fails only when it has just ended
	}
	waitUntil(stopGrace, func() bool { return len(processesBelow(cgroup)) == 0 })
}

// waitFor repeats attempt until it succeeds or ctx ends.
func waitFor(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func apiReady(ctx context.Context, client kubernetes.Interface) error {
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func accepts(socket string) error {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return connection.Close()
}
