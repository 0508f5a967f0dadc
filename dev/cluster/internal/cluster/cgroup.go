package cluster

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	cgroupMount   = "/sys/fs/cgroup"
	cgroupGrace   = 10 * time.Second
	defaultShares = 1024
	defaultWeight = 100
)

// neededControllers are those without which the kubelet does not start.
var neededControllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// cgroupHierarchies are the mounted trees: one for each controller in version 1, one in all in version 2.
func cgroupHierarchies() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if fields[2] == "cgroup" || fields[2] == "cgroup2" {
			found = append(found, fields[1])
		}
	}
	return found, nil
}

func isUnified() bool {
	var info unix.Statfs_t
	return unix.Statfs(cgroupMount, &info) == nil && info.Type == unix.CGROUP2_SUPER_MAGIC
}

// createCgroups makes the group that the kubelet puts its pods under.
func createCgroups(name string) error {
	if isUnified() {
		return createUnified(name)
	}
	for _, controller := range neededControllers {
		if _, err := os.Stat(filepath.Join(cgroupMount, controller)); err != nil {
			return fmt.Errorf("the cgroup controller %s is not mounted below %s: pods cannot be run here", controller, cgroupMount)
		}
	}
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		group := filepath.Join(hierarchy, name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		// A new cpuset is empty, and nothing can be put into an empty one.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			inherited, err := os.ReadFile(filepath.Join(hierarchy, file))
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(group, file), inherited, 0o644); err != nil {
				return err
			}
		}
	}
	return writeShares(filepath.Join(cgroupMount, "cpu", name, "cpu.shares"), defaultShares)
}

func createUnified(name string) error {
	available, err := os.ReadFile(filepath.Join(cgroupMount, "cgroup.controllers"))
	if err != nil {
		return err
	}
	group := filepath.Join(cgroupMount, name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	for _, folder := range []string{cgroupMount, group} {
		for controller := range bytes.FieldsSeq(available) {
			wanted := append([]byte("+"), controller...)
			if err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), wanted, 0o644); err != nil {
				return fmt.Errorf("enabling the cgroup controller %s: %w", controller, err)
			}
		}
	}
	return writeShares(filepath.Join(group, "cpu.weight"), defaultWeight)
}

// writeShares gives the pods' group a share for each CPU, as the kubelet does below it: with one share all pods
// together would get what any single busy process gets, with many more the control plane beside them starves.
func writeShares(file string, share int) error {
	shares := min(runtime.NumCPU(), 100) // of the larger weight the kernel takes no more
	return os.WriteFile(file, []byte(strconv.Itoa(share*shares)), 0o644)
}

// processesBelow are the processes in the groups of a cluster's pods, as numbered where it is called.
func processesBelow(name string) []int {
	root := filepath.Join(cgroupMount, name)
	if !isUnified() {
		root = filepath.Join(cgroupMount, "pids", name)
	}
	var found []int
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil // a group that went away has no processes
		}
		pids, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				found = append(found, pid)
			}
		}
		return nil
	})
	return found
}

// removeCgroups removes the groups of a cluster whose processes are gone.
func removeCgroups(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		// A group stays busy for a moment after its last process has ended.
		group := filepath.Join(hierarchy, name)
		waitUntil(cgroupGrace, func() bool { err = removeTree(group); return err == nil })
		if err != nil {
			return fmt.Errorf("removing the cgroup %s: %w", group, err)
		}
	}
	return nil
}

// removeTree removes folders from the deepest up; their files are the kernel's and go along.
func removeTree(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := os.Remove(folder); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
