package cluster

import (
	"bytes"
	"embed"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

//go:embed files
var files embed.FS

// capSysResource is the capability without which no process may lower an OOM score.
const capSysResource = 24

// values fill the files of a node.
type values struct {
	State, Socket, PKI, Bridge, Cgroup string
	PodCIDR                            netip.Prefix
	NodeIP, DNSIP                      netip.Addr
	RestrictOOMScore                   bool
}

func (n node) values() (values, error) {
	mayLower, err := hasCapability(capSysResource)
	return values{
		State:            string(n.state),
		Socket:           n.state.containerdSocket(),
		PKI:              n.state.pki(),
		Bridge:           n.config.Bridge,
		Cgroup:           n.config.cgroup(),
		PodCIDR:          n.config.PodCIDR,
		NodeIP:           n.config.nodeIP(),
		DNSIP:            n.config.dnsIP(),
		RestrictOOMScore: !mayLower,
	}, err
}

func (n node) writeFiles() error {
	values, err := n.values()
	if err != nil {
		return err
	}
	for source, target := range map[string]string{
		"containerd.toml":   "containerd.toml",
		"kubelet.yaml":      "kubelet.yaml",
		"cni.json":          "cni/draftmill.conflist",
		"audit-policy.yaml": "audit-policy.yaml",
	} {
		content, err := render(source, values)
		if err != nil {
			return err
		}
		file := n.state.path(target)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func render(name string, values any) ([]byte, error) {
	parsed, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	err = parsed.Execute(&content, values)
	return content.Bytes(), err
}

func hasCapability(number int) (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, after, _ := strings.Cut(string(status), "CapEff:")
	line, _, _ := strings.Cut(after, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return mask&(1<<number) != 0, err
}
