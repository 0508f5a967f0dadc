package cluster

import (
	"context"
	"encoding/json"
	"log"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"draftmill.dev/cluster/internal/pki"
)

const (
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	gpuCount    = "8"
	gpuInterval = 2 * time.Second
)

// gpuLabels are those that GPU feature discovery gives a node with eight RTX PRO 6000 Blackwell.
var gpuLabels = []string{
	"nvidia.com/gpu.present=true",
	"nvidia.com/gpu.product=NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
	"nvidia.com/gpu.family=blackwell",
	"nvidia.com/gpu.count=" + gpuCount,
	"nvidia.com/gpu.replicas=1",
	"nvidia.com/gpu.memory=97887",
	"nvidia.com/gpu.compute.major=12",
	"nvidia.com/gpu.compute.minor=0",
	"nvidia.com/gpu.sharing-strategy=none",
}

// node is the machine's side of a cluster.
type node struct {
	config Config
	state  state
}

func (n node) kubeconfig() string { return n.state.path("pki", "kubelet.kubeconfig") }

func (n node) writeCertificates(authority *pki.Authority) error {
	err := authority.Ensure("kubelet", pki.Identity{
		CommonName:    "system:node:" + n.config.nodeName(),
		Organizations: []string{"system:nodes"},
		IPs:           []net.IP{n.config.nodeIP().AsSlice()},
	})
	if err != nil {
		return err
	}
	return authority.WriteKubeconfig(n.kubeconfig(), n.config.Name, n.config.server(), "kubelet")
}

func (n node) containerd() part {
	return part{
		name:    "containerd",
		program: "/usr/bin/containerd",
		args:    []string{"--config", n.state.path("containerd.toml"), "--log-level", "warn"},
	}
}

func (n node) kubelet() part {
	return ownPart("kubelet",
		"--config="+n.state.path("kubelet.yaml"),
		"--kubeconfig="+n.kubeconfig(),
		// Without an address the kubelet looks the host's name up, for minutes where there is no DNS.
		"--node-ip="+n.config.nodeIP().String(),
		"--hostname-override="+n.config.nodeName(),
		"--node-labels="+strings.Join(gpuLabels, ","),
	)
}

func (n node) proxy(plane controlPlane) part {
	return ownPart("kube-proxy",
		"--kubeconfig="+plane.kubeconfig("kube-proxy"),
		"--proxy-mode=iptables",
		"--hostname-override="+n.config.nodeName(),
		"--cluster-cidr="+n.config.PodCIDR.String(),
		// Answers between two pods on the bridge need not pass the firewall, so they must come back to the node.
		"--masquerade-all",
		// The size of the connection table belongs to the host and is not ours to set.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s",
		"--healthz-bind-address=127.0.0.1:10256",
		"--metrics-bind-address=127.0.0.1:10249",
	)
}

func (n node) scheduler(plane controlPlane) part {
	return ownPart("kube-scheduler",
		"--kubeconfig="+plane.kubeconfig("kube-scheduler"),
		"--secure-port=0",
		"--leader-elect=false",
	)
}

// keepGPUs declares the node's GPUs, again whenever a kubelet that started anew has taken them back.
func (n node) keepGPUs(ctx context.Context, client kubernetes.Interface) {
	patch, err := json.Marshal(map[string]any{
		"status": map[string]any{"capacity": map[corev1.ResourceName]string{gpuResource: gpuCount}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for tick := time.NewTicker(gpuInterval); ctx.Err() == nil; {
		found, err := client.CoreV1().Nodes().Get(ctx, n.config.nodeName(), metav1.GetOptions{})
		if quantity := found.Status.Capacity[gpuResource]; err == nil && quantity.String() != gpuCount {
			_, err = client.CoreV1().Nodes().Patch(
				ctx, n.config.nodeName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			log.Printf("declared %s GPUs (error: %v)", gpuCount, err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
