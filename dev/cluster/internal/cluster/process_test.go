package cluster

import (
	"os/exec"
	"testing"
	"time"
)

func startSleeper(t *testing.T) (*exec.Cmd, process) {
	t.Helper()
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	sleeper, err := identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return command, sleeper
}

func TestAnotherProcessWithTheSamePidIsNotOurs(t *testing.T) {
	_, sleeper := startSleeper(t)
	reused := sleeper
	reused.StartTicks--
	if !sleeper.alive() || reused.alive() {
		t.Errorf("alive: own %t, reused %t; want true, false", sleeper.alive(), reused.alive())
	}
	if err := reused.stop(0); err != nil || !sleeper.alive() {
		t.Errorf("stopping a process that is gone must not touch the one that has its pid now (error: %v)", err)
	}
}

func TestStopEndsAProcess(t *testing.T) {
	command, sleeper := startSleeper(t)
	go func() { _ = command.Wait() }()
	if err := sleeper.stop(10 * time.Second); err != nil || sleeper.alive() {
		t.Errorf("still alive: %t (error: %v)", sleeper.alive(), err)
	}
}
