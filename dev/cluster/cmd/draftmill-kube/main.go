// Command draftmill-kube is a single-node Kubernetes in one file. Its first
// argument, or the name it is called by, chooses a component of Kubernetes or
// one of the commands that start and stop a whole cluster made of them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	run, found := programs[name]
	if !found && len(args) > 0 {
		name, args = args[0], args[1:]
		run, found = programs[name]
	}
	if !found {
		fmt.Fprintf(os.Stderr, "usage: draftmill-kube (%s) [flags]\n", strings.Join(names(), " | "))
		os.Exit(2)
	}
	// The components read os.Args themselves and print its first word in their help.
	os.Args = append([]string{name}, args...)
	nameProcess(name)
	os.Exit(run(args))
}

// nameProcess sets what ps and top show, which is otherwise the name of the one binary.
func nameProcess(name string) {
	if text, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

func names() []string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
