package cluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/client-go/kubernetes"
)

const (
	defaultName   = "demo"
	defaultBridge = "draftmill0"
	startLimit    = 3 * time.Minute
	// The kernel's limit for the path of a socket, with room for containerd's suffix.
	longestSocket = 90
	longestName   = 40
)

var (
	errEnded = errors.New("the cluster ended while it started")
	// A cluster's name is its node's too, and part of the names of control groups.
	validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
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
		found.Config.Bridge = cmp.Or(found.Config.Bridge, defaultBridge)
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
	flags.StringVar(&options.wanted.Bridge, "bridge", "", "name of the pods' bridge, inside the cluster's network namespace (default "+defaultBridge+")")
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
	if name := options.wanted.Name; len(name) > longestName || !validName.MatchString(name) {
		return options, fmt.Errorf("%q cannot be a cluster's name: at most %d lower-case letters, digits and '-'", name, longestName)
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
	if c.Bridge != "" && c.Bridge != existing.Bridge {
		return fmt.Errorf("the cluster %s has the bridge %s, not %s: stop it first", existing.Name, existing.Bridge, c.Bridge)
	}
	return nil
}

// complete brings a started cluster to health: images, CoreDNS, then waiting.
func (n node) complete(ctx context.Context, supervisor process, client kubernetes.Interface, images []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		waitUntil(startLimit, func() bool { return ctx.Err() != nil || !supervisor.alive() })
		cancel(errEnded)
	}()
	for _, step := range []func() error{
		func() error { return waitFor(ctx, func() error { return accepts(n.state.containerdSocket()) }) },
		func() error { return n.importImages(images) },
		func() error { return waitFor(ctx, func() error { return apiReady(ctx, client) }) },
		n.applyDNS,
		func() error { return waitFor(ctx, func() error { return n.healthy(ctx, supervisor, client) }) },
	} {
		err := step()
		if err != nil && !supervisor.alive() {
			return fmt.Errorf("%w; the reason is in %s", errEnded, n.state.log("supervisor"))
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
