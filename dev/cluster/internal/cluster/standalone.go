package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var standaloneServices = netip.MustParsePrefix("10.0.0.0/24")

// ControlPlane runs etcd, the API server and the controller manager on free
// ports of 127.0.0.1, as any user, until its standard input closes: a test that
// dies cannot leave it behind. It prints the kubeconfig's place when it is ready.
func ControlPlane(args []string) int { return report(runControlPlane(args)) }

func runControlPlane(args []string) error {
	flags := flag.NewFlagSet("control-plane", flag.ContinueOnError)
	folder := flags.String("state-dir", "", "folder of this control plane")
	audit := flags.Bool("audit", false, "write the audit log of all writes, <state-dir>/audit.log")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *folder == "" {
		return errors.New("--state-dir is missing")
	}
	if socket := state(*folder).etcdSocket(); len(socket) > longestSocket {
		return fmt.Errorf("the path %s is too long for a socket: choose a shorter --state-dir", socket)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	port, err := freePort()
	if err != nil {
		return err
	}
	plane := controlPlane{
		state:       state(*folder),
		address:     netip.MustParseAddr("127.0.0.1"),
		port:        port,
		serviceCIDR: standaloneServices,
		audit:       *audit,
	}
	if err := plane.run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func (c controlPlane) run(ctx context.Context) error {
	if err := os.MkdirAll(c.state.path("logs"), 0o755); err != nil {
		return err
	}
	policy, err := render("audit-policy.yaml", nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.state.path("audit-policy.yaml"), policy, 0o644); err != nil {
		return err
	}
	authority, err := c.writeCertificates("control-plane")
	if err != nil {
		return err
	}
	client, err := newClient(c.state.kubeconfig())
	if err != nil {
		return err
	}
	supervisor := newSupervisor(c.state)
	supervisor.keep(ctx, c.etcd())
	supervisor.keep(ctx, c.apiServer(authority))
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := waitFor(limited, func() error { return apiReady(limited, client) }); err != nil {
		return fmt.Errorf("the API server is not ready: %w\nIts log: %s", err, c.state.log("kube-apiserver"))
	}
	supervisor.keep(ctx, c.controllerManager(authority))
	if err := waitFor(limited, func() error { return defaultAccount(limited, client) }); err != nil {
		return fmt.Errorf("the controller manager does not work: %w\nIts log: %s", err, c.state.log("kube-controller-manager"))
	}
	fmt.Println(c.state.kubeconfig())
	<-ctx.Done()
	return nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
