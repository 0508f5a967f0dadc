package cluster

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	nodeInterface = "eth0"
	firstRange    = 200
	lastRange     = 250
)

// hostInterface is the host's end of the link to the node. Interface names have at most 15 bytes.
func (c Config) hostInterface() string {
	hash := fnv.New32a()
	hash.Write([]byte(c.Name))
	return fmt.Sprintf("draft%08x", hash.Sum32())
}

// rangesOf divides 10.n.0.0/16 among services, pods and the link to the host.
func rangesOf(n byte) Config {
	prefix := func(third, fourth byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n, third, fourth}), bits)
	}
	return Config{
		ServiceCIDR: prefix(0, 0, 20),
		PodCIDR:     prefix(128, 0, 20),
		HostCIDR:    prefix(255, 252, 30),
	}
}

func (c Config) ranges() []netip.Prefix {
	return []netip.Prefix{c.ServiceCIDR, c.PodCIDR, c.HostCIDR}
}

// withFreeRanges fills in the ranges that were not chosen, from what the host has no route to.
func (c Config) withFreeRanges(taken []netip.Prefix) (Config, error) {
	for n := firstRange; n <= lastRange; n++ {
		proposed := rangesOf(byte(n))
		if overlap(proposed.ranges(), taken) != nil {
			continue
		}
		for own, free := range map[*netip.Prefix]netip.Prefix{
			&c.ServiceCIDR: proposed.ServiceCIDR, &c.PodCIDR: proposed.PodCIDR, &c.HostCIDR: proposed.HostCIDR,
		} {
			if !own.IsValid() {
				*own = free
			}
		}
		return c, c.checkRanges(taken)
	}
	return c, errors.New("no free address range in 10.200.0.0 to 10.250.255.255: give --pod-cidr, --service-cidr and --host-cidr")
}

func (c Config) checkRanges(taken []netip.Prefix) error {
	all := c.ranges()
	for i, own := range all {
		if clash := overlap([]netip.Prefix{own}, append(all[:i:i], taken...)); clash != nil {
			return fmt.Errorf("the address range %s overlaps %s, which is in use: choose another", own, clash)
		}
	}
	return nil
}

// overlap returns the first of taken that shares an address with one of wanted.
func overlap(wanted, taken []netip.Prefix) *netip.Prefix {
	for _, own := range wanted {
		for _, other := range taken {
			if own.Overlaps(other) {
				return &other
			}
		}
	}
	return nil
}

// routedPrefixes are the ranges that the host has a route to, the default route left out.
func routedPrefixes() ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		prefix, err := netip.ParsePrefix(route.Dst.String())
		if err != nil {
			return nil, err
		}
		if prefix.Bits() > 0 {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}

// connect lays the link from the host to the node, whose network namespace is
// that of pid, and routes the ranges of pods and Services along it.
func (c Config) connect(pid int) error {
	link := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: c.hostInterface()},
		PeerName:      nodeInterface,
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("adding the interface %s: %w", c.hostInterface(), err)
	}
	if err := bringUp(c.hostInterface(), c.hostIP(), c.HostCIDR.Bits()); err != nil {
		return err
	}
	for _, target := range []netip.Prefix{c.PodCIDR, c.ServiceCIDR} {
		route := &netlink.Route{Dst: ipNet(target), Gw: c.nodeIP().AsSlice(), Src: c.hostIP().AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("adding the route to %s: %w", target, err)
		}
	}
	return nil
}

// disconnect takes away what connect laid. The kernel does it too, some time
// after the node's namespace is gone.
func (c Config) disconnect() error {
	link, err := netlink.LinkByName(c.hostInterface())
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	err = netlink.LinkDel(link)
	gone := waitUntil(5*time.Second, func() bool {
		_, err := netlink.LinkByName(c.hostInterface())
		return errors.As(err, &netlink.LinkNotFoundError{})
	})
	if gone {
		return nil
	}
	return fmt.Errorf("removing the interface %s: %w", c.hostInterface(), err)
}

// setUpNodeNetwork runs inside the node's network namespace.
func (c Config) setUpNodeNetwork() error {
	if err := bringUp("lo", netip.Addr{}, 0); err != nil {
		return err
	}
	if err := bringUp(nodeInterface, c.nodeIP(), c.HostCIDR.Bits()); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func bringUp(name string, address netip.Addr, bits int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if address.IsValid() {
		own := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, bits))}
		if err := netlink.AddrReplace(link, own); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", name, address, err)
		}
	}
	return netlink.LinkSetUp(link)
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
