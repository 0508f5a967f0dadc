package cluster

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// volumesFolder holds what people's pods wrote; it outlives the cluster.
	volumesFolder = "volumes"
	downGrace     = stopGrace + 10*time.Second
)

// Down stops the cluster and removes all of it but the volumes folder.
func Down(args []string) int { return report(down(args)) }

func down(args []string) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	folder := stateFlag(flags)
	name := flags.String("name", defaultName, "name of the cluster")
	purge := flags.Bool("purge", false, "remove the volumes folder too, with all data in it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := folder(*name)
	unlock, err := lockMachine()
	if err != nil {
		return err
	}
	defer unlock()
	found, err := s.load()
	if err != nil {
		return err
	}
	if found != nil {
		if err := found.Supervisor.stop(downGrace); err != nil {
			return err
		}
		if err := clearLeftovers(found.Config); err != nil {
			return err
		}
	}
	return s.remove(*purge)
}

// remove deletes the folder, or all but the volumes in it.
func (s state) remove(volumesToo bool) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+string(s)+"/") {
		return fmt.Errorf("something is mounted below %s: unmount it first, so that it is not deleted", s)
	}
	entries, err := os.ReadDir(string(s))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := false
	for _, entry := range entries {
		if entry.Name() == volumesFolder && !volumesToo {
			kept = true
			continue
		}
		if err := os.RemoveAll(s.path(entry.Name())); err != nil {
			return err
		}
	}
	if kept {
		return nil
	}
	return os.Remove(string(s))
}
