// Package cluster starts, repairs and stops a single-node Kubernetes that lives
// in PID, mount and network namespaces of its own: when the first process of
// the PID namespace ends, the kernel ends every other and takes the mounts,
// interfaces and firewall rules away.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

const (
	apiPort = 6443
	// The first address of a service range is the API server's own Service.
	apiServiceIndex = 1
	dnsServiceIndex = 10
)

// Config is what may differ between two clusters of one machine.
type Config struct {
	Name        string       `json:"name"`
	PodCIDR     netip.Prefix `json:"podCIDR"`
	ServiceCIDR netip.Prefix `json:"serviceCIDR"`
	// HostCIDR is the link between host and node: its first address is the host's, its second the node's.
	HostCIDR netip.Prefix `json:"hostCIDR"`
	Bridge   string       `json:"bridge"`
}

func (c Config) hostIP() netip.Addr       { return nthAddress(c.HostCIDR, 1) }
func (c Config) nodeIP() netip.Addr       { return nthAddress(c.HostCIDR, 2) }
func (c Config) apiServiceIP() netip.Addr { return nthAddress(c.ServiceCIDR, apiServiceIndex) }
func (c Config) dnsIP() netip.Addr        { return nthAddress(c.ServiceCIDR, dnsServiceIndex) }
func (c Config) nodeName() string         { return c.Name }
func (c Config) server() string           { return fmt.Sprintf("https://%s:%d", c.nodeIP(), apiPort) }
func (c Config) cgroup() string           { return "draftmill-" + c.Name }

func nthAddress(prefix netip.Prefix, n int) netip.Addr {
	address := prefix.Masked().Addr()
	for range n {
		address = address.Next()
	}
	return address
}

// record is what the state folder says of a cluster that was started from it.
type record struct {
	Config     Config  `json:"config"`
	Supervisor process `json:"supervisor"`
}

// state is the folder of one cluster.
type state string

func (s state) path(parts ...string) string {
	return filepath.Join(append([]string{string(s)}, parts...)...)
}

func (s state) kubeconfig() string       { return s.path("kubeconfig") }
func (s state) recordFile() string       { return s.path("cluster.json") }
func (s state) pki() string              { return s.path("pki") }
func (s state) etcdSocket() string       { return s.path("etcd.sock") }
func (s state) containerdSocket() string { return s.path("containerd.sock") }
func (s state) log(part string) string   { return s.path("logs", part+".log") }

// load returns nil where no cluster was started yet.
func (s state) load() (*record, error) {
	content, err := os.ReadFile(s.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found record
	if err := json.Unmarshal(content, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", s.recordFile(), err)
	}
	return &found, nil
}

func (s state) save(r record) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	temporary := s.recordFile() + ".new"
	if err := os.WriteFile(temporary, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, s.recordFile())
}
