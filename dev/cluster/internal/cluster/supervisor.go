package cluster

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	firstBackoff = time.Second
	longBackoff  = 30 * time.Second
	// A part that ran for so long starts again with the first backoff.
	steadyAfter = time.Minute
)

// part is one program of the cluster, which is started again whenever it ends.
type part struct {
	name    string
	program string
	args    []string
}

// ownPart is a part that lives in this binary, chosen by its name.
func ownPart(name string, args ...string) part {
	return part{name: name, program: "/proc/self/exe", args: args}
}

// supervisor keeps the parts running and reaps every orphan that falls to it.
type supervisor struct {
	state    state
	requests chan startRequest
}

type startRequest struct {
	part   part
	output *os.File
	reply  chan started
}

type started struct {
	pid   int
	ended chan syscall.WaitStatus
	err   error
}

func newSupervisor(s state) *supervisor {
	supervisor := &supervisor{state: s, requests: make(chan startRequest)}
	go supervisor.startAndReap()
	return supervisor
}

// startAndReap starts and reaps in one goroutine, so that no child can end
// before it is known. Its thread lives as long as the process does: the kernel
// sends the children their parent-death signal when that thread ends.
func (s *supervisor) startAndReap() {
	runtime.LockOSThread()
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	children := map[int]chan syscall.WaitStatus{}
	for {
		select {
		case request := <-s.requests:
			pid, err := fork(request.part, request.output)
			ended := make(chan syscall.WaitStatus, 1)
			if err == nil {
				children[pid] = ended
			}
			request.reply <- started{pid, ended, err}
		case <-deaths:
			for {
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
				if err != nil || pid <= 0 {
					break
				}
				if ended, ours := children[pid]; ours {
					ended <- status
					delete(children, pid)
				}
			}
		}
	}
}

func fork(p part, output *os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec(p.program, append([]string{p.name}, p.args...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// keep runs the part until ctx ends, then asks it to end too.
func (s *supervisor) keep(ctx context.Context, p part) {
	go func() {
		backoff := firstBackoff
		for ctx.Err() == nil {
			began := time.Now()
			outcome := s.runOnce(ctx, p)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > steadyAfter {
				backoff = firstBackoff
			}
			log.Printf("%s ended (%s), starting it again in %s", p.name, outcome, backoff)
			select {
			case <-ctx.Done():
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, longBackoff)
		}
	}()
}

func (s *supervisor) runOnce(ctx context.Context, p part) string {
	output, err := os.OpenFile(s.state.log(p.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err.Error()
	}
	defer output.Close()
	request := startRequest{part: p, output: output, reply: make(chan started)}
	s.requests <- request
	child := <-request.reply
	if child.err != nil {
		return child.err.Error()
	}
	select {
	case status := <-child.ended:
		return describe(status)
	case <-ctx.Done():
		_ = syscall.Kill(child.pid, syscall.SIGTERM) // fails only when it has just ended
		return describe(<-child.ended)
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("signal %d, %s", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
