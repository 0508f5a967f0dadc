package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"draftmill.dev/cluster/internal/pki"
)

const (
	etcdQuotaBytes = 2 << 30
	adminName      = "admin"
)

// controlPlane is etcd, the API server and the controller manager, with or without a node.
type controlPlane struct {
	state       state
	address     netip.Addr
	port        int
	serviceCIDR netip.Prefix
	// withNode: kubelets report to it, so it is durable and announces itself to pods.
	withNode bool
	audit    bool
}

func (c controlPlane) server() string {
	return "https://" + net.JoinHostPort(c.address.String(), strconv.Itoa(c.port))
}

func (c controlPlane) kubeconfig(holder string) string {
	return c.state.path("pki", holder+".kubeconfig")
}

// clients are the users that the cluster's own programs come as.
func clients() map[string]pki.Identity {
	return map[string]pki.Identity{
		adminName:                 {CommonName: adminName, Organizations: []string{"system:masters"}},
		"kubelet-client":          {CommonName: "kube-apiserver", Organizations: []string{"system:masters"}},
		"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
		"kube-scheduler":          {CommonName: "system:kube-scheduler"},
		"kube-proxy":              {CommonName: "system:kube-proxy"},
	}
}

// writeCertificates makes whatever of the cluster's certificates and kubeconfigs is missing.
func (c controlPlane) writeCertificates(name string) (*pki.Authority, error) {
	authority, err := pki.Open(c.state.pki())
	if err != nil {
		return nil, err
	}
	if err := authority.EnsureKey("service-account"); err != nil {
		return nil, err
	}
	serving := pki.Identity{
		CommonName: "kube-apiserver",
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
		IPs: []net.IP{
			c.address.AsSlice(), net.IPv4(127, 0, 0, 1), nthAddress(c.serviceCIDR, apiServiceIndex).AsSlice(),
		},
	}
	if err := authority.Ensure("kube-apiserver", serving); err != nil {
		return nil, err
	}
	for holder, identity := range clients() {
		if err := authority.Ensure(holder, identity); err != nil {
			return nil, err
		}
		if err := authority.WriteKubeconfig(c.kubeconfig(holder), name, c.server(), holder); err != nil {
			return nil, err
		}
	}
	return authority, authority.WriteKubeconfig(c.state.kubeconfig(), name, c.server(), adminName)
}

func (c controlPlane) etcd() part {
	args := []string{
		"--data-dir=" + c.state.path("etcd"),
		"--listen-client-urls=unix://" + c.state.etcdSocket(),
		// etcd refuses to announce a socket; nobody reads this address.
		"--advertise-client-urls=http://127.0.0.1:0",
		"--listen-peer-urls=http://127.0.0.1:0",
		fmt.Sprintf("--quota-backend-bytes=%d", etcdQuotaBytes),
		"--log-level=warn",
	}
	if !c.withNode {
		args = append(args, "--unsafe-no-fsync")
	}
	return ownPart("etcd", args...)
}

func (c controlPlane) apiServer(authority *pki.Authority) part {
	args := []string{
		"--etcd-servers=unix://" + c.state.etcdSocket(),
		"--bind-address=" + c.address.String(),
		"--advertise-address=" + c.address.String(),
		"--secure-port=" + strconv.Itoa(c.port),
		"--service-cluster-ip-range=" + c.serviceCIDR.String(),
		"--tls-cert-file=" + authority.CertificateFile("kube-apiserver"),
		"--tls-private-key-file=" + authority.KeyFile("kube-apiserver"),
		"--client-ca-file=" + authority.CertificateFile("ca"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + authority.KeyFile("service-account"),
		"--service-account-signing-key-file=" + authority.KeyFile("service-account"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
	}
	if c.audit {
		args = append(args,
			"--audit-policy-file="+c.state.path("audit-policy.yaml"),
			"--audit-log-path="+c.state.path("audit.log"),
			"--audit-log-maxsize=100",
			"--audit-log-maxbackup=2",
		)
	}
	if c.withNode {
		args = append(args,
			"--kubelet-certificate-authority="+authority.CertificateFile("ca"),
			"--kubelet-client-certificate="+authority.CertificateFile("kubelet-client"),
			"--kubelet-client-key="+authority.KeyFile("kubelet-client"),
			// The default order starts with the node's name, which nothing resolves.
			"--kubelet-preferred-address-types=InternalIP",
		)
	} else {
		args = append(args, "--endpoint-reconciler-type=none")
	}
	return ownPart("kube-apiserver", args...)
}

func (c controlPlane) controllerManager(authority *pki.Authority) part {
	return ownPart("kube-controller-manager",
		"--kubeconfig="+c.kubeconfig("kube-controller-manager"),
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--root-ca-file="+authority.CertificateFile("ca"),
		"--service-account-private-key-file="+authority.KeyFile("service-account"),
		"--cluster-signing-cert-file="+authority.CertificateFile("ca"),
		"--cluster-signing-key-file="+authority.KeyFile("ca"),
		// Each of some forty controllers asks for its own token first; at the default of 20 per second that takes 4 s.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// A claim that is seen before its volume waits for the next round: 15 s by default.
		"--pvclaimbinder-sync-period=1s",
	)
}
