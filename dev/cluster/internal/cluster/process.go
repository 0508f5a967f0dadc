package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process names one process for good: a pid alone may be another's by now.
type process struct {
	PID int `json:"pid"`
	// StartTicks is field 22 of /proc/<pid>/stat, clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	// Boot is the id of the boot that the ticks count from.
	Boot string `json:"boot"`
}

func identify(pid int) (process, error) {
	ticks, _, err := stat(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return process{PID: pid, StartTicks: ticks, Boot: strings.TrimSpace(string(boot))}, err
}

func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	now, err := identify(p.PID)
	if err != nil || now != p {
		return false
	}
	_, status, err := stat(p.PID)
	return err == nil && status != "Z"
}

func (p process) signal(sig os.Signal) error {
	// FindProcess holds a pidfd, so the check and the signal concern the same process.
	handle, err := os.FindProcess(p.PID)
	if err != nil || !p.alive() {
		return err
	}
	defer func() { _ = handle.Release() }()
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// stop asks the process to end and kills it when it has not done so in time.
func (p process) stop(grace time.Duration) error {
	for _, step := range []struct {
		signal os.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, 10 * time.Second}} {
		if err := p.signal(step.signal); err != nil {
			return err
		}
		if waitUntil(step.wait, func() bool { return !p.alive() }) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

// children maps the program name of each child to its pid.
func (p process) children() map[string]int {
	found := map[string]int{}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID))
	for _, task := range tasks {
		pids, _ := os.ReadFile(task) // a thread that ended meanwhile has no children
		for _, word := range strings.Fields(string(pids)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			commandLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			program, _, _ := bytes.Cut(commandLine, []byte{0})
			if len(program) > 0 {
				found[filepath.Base(string(program))] = pid
			}
		}
	}
	return found
}

func stat(pid int) (startTicks uint64, status string, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The program's name, in parentheses, may hold blanks and parentheses itself.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	startTicks, err = strconv.ParseUint(fields[19], 10, 64)
	return startTicks, fields[0], err
}

func waitUntil(limit time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(limit); ; {
		if condition() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
}
