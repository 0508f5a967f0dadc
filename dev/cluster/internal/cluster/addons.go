package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func (n node) importImages(archives []string) error {
	for _, archive := range archives {
		command := exec.Command("ctr", "--address", n.state.containerdSocket(), "--namespace", "k8s.io", "images", "import", archive)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", archive, err, output)
		}
	}
	return nil
}

func (n node) applyDNS() error {
	values, err := n.values()
	if err != nil {
		return err
	}
	manifests, err := render("coredns.yaml", values)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(executable, "kubectl", "--kubeconfig", n.state.kubeconfig(),
		"apply", "--server-side", "--force-conflicts", "--filename", "-")
	command.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*")
	command.Stdin = strings.NewReader(string(manifests))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("applying CoreDNS: %w: %s", err, output)
	}
	return nil
}
