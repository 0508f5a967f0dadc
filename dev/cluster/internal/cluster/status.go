package cluster

import (
	"context"
	"flag"
	"fmt"
)

// Status prints what runs and whether it is healthy; the exit code is 1 when it is not.
func Status(args []string) int { return report(status(args)) }

func status(args []string) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError)
	folder := stateFlag(flags)
	name := flags.String("name", defaultName, "name of the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := folder(*name)
	found, err := s.load()
	if err != nil {
		return err
	}
	if found == nil || !found.Supervisor.alive() {
		return fmt.Errorf("the cluster %s is not running", *name)
	}
	config := found.Config
	fmt.Printf("cluster     %s (process %d)\n", config.Name, found.Supervisor.PID)
	fmt.Printf("API         %s\n", config.server())
	fmt.Printf("kubeconfig  %s\n", s.kubeconfig())
	fmt.Printf("logs        %s\n", s.path("logs"))
	fmt.Printf("pods        %s, Services %s\n", config.PodCIDR, config.ServiceCIDR)
	running := found.Supervisor.children()
	for _, part := range partNames {
		if pid, found := running[part]; found {
			fmt.Printf("process     %-24s %d\n", part, pid)
		} else {
			fmt.Printf("process     %-24s not running\n", part)
		}
	}
	client, err := newClient(s.kubeconfig())
	if err != nil {
		return err
	}
	if err := (node{config: config, state: s}).healthy(context.Background(), found.Supervisor, client); err != nil {
		return err
	}
	fmt.Println("healthy")
	return nil
}
