package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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
