package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// start clears what a dead cluster left and starts the supervisor in namespaces of its own.
func start(s state, r *record) error {
	if err := clearLeftovers(r.Config); err != nil {
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

// clearLeftovers removes what the processes of a dead cluster left on the host.
func clearLeftovers(c Config) error {
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
