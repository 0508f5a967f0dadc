package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
)

const (
	defaultName   = "demo"
	defaultBridge = "draftmill0"
	startLimit    = 3 * time.Minute
	// The kernel's limit for the path of a socket, with room for containerd's suffix.
	longestSocket = 90
	// A name is part of interface, cgroup and host names.
	longestName = 40
)

// upOptions are the flags of `up`.
type upOptions struct {
	state  state
	wanted Config
	images []string
}

// Up starts the cluster, repairs it, or finds it healthy and does nothing.
func Up(args []string) int { return report(up(args)) }

func up(args []string) error {
	options, err := parseUp(args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(options.state), 0o755); err != nil {
		return err
	}
	unlock, err := lockMachine()
	if err != nil {
		return err
	}
	defer unlock()
	found, err := options.state.load()
	if err != nil {
		return err
	}
	if found == nil {
		found = &record{Config: options.wanted}
	} else if err := options.wanted.agreesWith(found.Config); err != nil {
		return err
	}
	if found.Supervisor.alive() {
		err := bringToHealth(options, *found)
		// A supervisor that was killed counts as alive until the last of its processes is gone.
		if found.Supervisor.alive() {
			return err
		}
	}
	if err := start(options.state, found); err != nil {
		return err
	}
	return bringToHealth(options, *found)
}

func bringToHealth(options upOptions, r record) error {
	node := node{config: r.Config, state: options.state}
	client, err := newClient(options.state.kubeconfig())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if node.healthy(ctx, r.Supervisor, client) == nil {
		return nil
	}
	return node.complete(ctx, r.Supervisor, client, options.images)
}

func parseUp(args []string) (upOptions, error) {
	var options upOptions
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	folder := stateFlag(flags)
	flags.StringVar(&options.wanted.Name, "name", defaultName, "name of the cluster and of its node")
	flags.StringVar(&options.wanted.Bridge, "bridge", defaultBridge, "name of the pods' bridge, inside the cluster's network namespace")
	flags.TextVar(&options.wanted.PodCIDR, "pod-cidr", netip.Prefix{}, "addresses of pods (default: a free range)")
	flags.TextVar(&options.wanted.ServiceCIDR, "service-cidr", netip.Prefix{}, "addresses of Services (default: a free range)")
	flags.TextVar(&options.wanted.HostCIDR, "host-cidr", netip.Prefix{}, "link between host and node, a /30 (default: a free range)")
	flags.Func("image", "OCI archive to import (repeatable)", func(archive string) error {
		options.images = append(options.images, archive)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return options, err
	}
	if len(options.wanted.Name) > longestName {
		return options, fmt.Errorf("the name %s is too long: at most %d characters", options.wanted.Name, longestName)
	}
	options.state = folder(options.wanted.Name)
	if socket := options.state.etcdSocket(); len(socket) > longestSocket {
		return options, fmt.Errorf("the path %s is too long for a socket: choose a shorter --state-dir", socket)
	}
	return options, nil
}

// stateFlag adds --state-dir; the result gives the folder of the cluster called name.
func stateFlag(flags *flag.FlagSet) func(name string) state {
	folder := flags.String("state-dir", "", "folder of the cluster (default /var/lib/draftmill/<name>)")
	return func(name string) state {
		if *folder == "" {
			return state(filepath.Join("/var/lib/draftmill", name))
		}
		absolute, err := filepath.Abs(*folder)
		if err != nil {
			return state(*folder)
		}
		return state(absolute)
	}
}

// agreesWith returns an error when a range was asked for that the existing cluster does not have.
func (c Config) agreesWith(existing Config) error {
	for what, pair := range map[string][2]netip.Prefix{
		"pods":     {c.PodCIDR, existing.PodCIDR},
		"Services": {c.ServiceCIDR, existing.ServiceCIDR},
		"the link": {c.HostCIDR, existing.HostCIDR},
	} {
		if pair[0].IsValid() && pair[0] != pair[1] {
			return fmt.Errorf("the cluster %s has the range %s for %s, not %s: stop it first", existing.Name, pair[1], what, pair[0])
		}
	}
	if c.Bridge != existing.Bridge {
		return fmt.Errorf("the cluster %s has the bridge %s, not %s: stop it first", existing.Name, existing.Bridge, c.Bridge)
	}
	return nil
}

// start clears what a dead cluster left and starts the supervisor in namespaces of its own.
func start(s state, r *record) error {
	if err := clear(r.Config); err != nil {
		return err
	}
	taken, err := routedPrefixes()
	if err != nil {
		return err
	}
	if r.Config, err = r.Config.withFreeRanges(taken); err != nil {
		return err
	}
	for _, folder := range []string{"kubelet", "logs", "cni"} {
		if err := os.MkdirAll(s.path(folder), 0o755); err != nil {
			return err
		}
	}
	node := node{config: r.Config, state: s}
	authority, err := node.controlPlane().writeCertificates(r.Config.Name)
	if err != nil {
		return err
	}
	if err := errors.Join(node.writeCertificates(authority), node.writeFiles()); err != nil {
		return err
	}
	if err := createCgroups(r.Config.cgroup()); err != nil {
		return err
	}
	supervisor, release, err := spawn(s)
	if err != nil {
		return err
	}
	r.Supervisor = supervisor
	if err := errors.Join(s.save(*r), r.Config.connect(supervisor.PID)); err != nil {
		return errors.Join(err, supervisor.stop(0))
	}
	return release()
}

// clear removes what the processes of a dead cluster left on the host.
func clear(c Config) error {
	return errors.Join(c.disconnect(), removeCgroups(c.cgroup()))
}

// spawn starts the supervisor; it waits for release before it does anything.
func spawn(s state) (process, func() error, error) {
	output, err := os.OpenFile(s.log("supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return process{}, nil, err
	}
	defer output.Close()
	executable, err := os.Executable()
	if err != nil {
		return process{}, nil, err
	}
	command := exec.Command(executable, "init", string(s))
	command.Dir = "/"
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setsid:     true,
	}
	gate, err := command.StdinPipe()
	if err != nil {
		return process{}, nil, err
	}
	if err := command.Start(); err != nil {
		return process{}, nil, fmt.Errorf("starting a process in new PID, mount and network namespaces: %w", err)
	}
	supervisor, err := identify(command.Process.Pid)
	go func() { _ = command.Wait() }() // its end shows in process.alive
	return supervisor, func() error {
		_, err := gate.Write([]byte{1})
		return errors.Join(err, gate.Close())
	}, err
}

// complete brings a started cluster to health: images, CoreDNS, then waiting.
func (n node) complete(ctx context.Context, supervisor process, client kubernetes.Interface, images []string) error {
	alive := func(attempt func() error) func() error {
		return func() error {
			if !supervisor.alive() {
				return nil
			}
			return attempt()
		}
	}
	steps := []func() error{
		func() error { return waitFor(ctx, alive(func() error { return accepts(n.state.containerdSocket()) })) },
		func() error { return n.importImages(images) },
		func() error { return waitFor(ctx, alive(func() error { return apiReady(ctx, client) })) },
		n.applyDNS,
		func() error { return waitFor(ctx, alive(func() error { return n.healthy(ctx, supervisor, client) })) },
	}
	for _, step := range steps {
		err := step()
		if !supervisor.alive() {
			return fmt.Errorf("the cluster ended while it started; the reason is in %s", n.state.log("supervisor"))
		}
		if err != nil {
			return fmt.Errorf("the cluster is not healthy: %w\nIts logs: %s", err, n.state.path("logs"))
		}
	}
	return nil
}

func (n node) importImages(archives []string) error {
	for _, archive := range archives {
		command := exec.Command("ctr", "--address", n.state.containerdSocket(), "--namespace", "k8s.io", "images", "import", archive)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", archive, err, output)
		}
	}
	return nil
}

func (n node) applyDNS() error {
	values, err := n.values()
	if err != nil {
		return err
	}
	manifests, err := render("coredns.yaml", values)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(executable, "kubectl", "--kubeconfig", n.state.kubeconfig(),
		"apply", "--server-side", "--force-conflicts", "--filename", "-")
	command.Stdin = strings.NewReader(string(manifests))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("applying CoreDNS: %w: %s", err, output)
	}
	return nil
}

// lockMachine lets one `up` or `down` at a time run on this machine, since they
// choose among its addresses. The lock leaves no file behind.
func lockMachine() (unlock func(), err error) {
	folder, err := os.Open("/var/lib")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { _ = folder.Close() }, nil
}

func report(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 2
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}
