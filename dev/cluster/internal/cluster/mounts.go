package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSettings are written by the kubelet but belong to the whole machine:
// the node gets copies to write to.
var kernelSettings = []string{
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/panic",
	"/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys",
	"/proc/sys/kernel/keys/root_maxbytes",
}

// isolateMounts gives the calling process, which has a mount namespace of its
// own, private places where the node's programs would write to the host's.
func isolateMounts(s state) error {
	for _, change := range []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		// Inside, mounts must spread to pods that ask for it.
		{target: "/", flags: unix.MS_REC | unix.MS_SHARED},
		{source: "proc", target: "/proc", kind: "proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{source: "tmpfs", target: "/run", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, options: "mode=755"},
		{source: "tmpfs", target: "/var/lib/cni", kind: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV},
		{source: s.path("kubelet"), target: "/var/lib/kubelet", flags: unix.MS_BIND},
		{source: s.path("logs"), target: "/var/log", flags: unix.MS_BIND},
	} {
		if err := change.apply(); err != nil {
			return err
		}
	}
	for _, setting := range kernelSettings {
		if err := shield(setting); err != nil {
			return err
		}
	}
	return nil
}

type mount struct {
	source, target, kind string
	flags                uintptr
	options              string
}

func (m mount) apply() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return fmt.Errorf("mounting %s: %w", m.target, err)
	}
	return nil
}

// shield puts a copy of a kernel setting's file over it.
func shield(setting string) error {
	content, err := os.ReadFile(setting)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	copied := filepath.Join("/run", strings.ReplaceAll(strings.TrimPrefix(setting, "/"), "/", "-"))
	if err := os.WriteFile(copied, content, 0o644); err != nil {
		return err
	}
	return unix.Mount(copied, setting, "", unix.MS_BIND, "")
}
