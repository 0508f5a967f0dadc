package cluster

import (
	"net/netip"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, text := range texts {
		parsed = append(parsed, netip.MustParsePrefix(text))
	}
	return parsed
}

func TestFreeRangesAvoidWhatIsRouted(t *testing.T) {
	for name, test := range map[string]struct {
		taken    []netip.Prefix
		services string
	}{
		"nothing is taken":           {nil, "10.200.0.0/20"},
		"another cluster runs":       {prefixes("10.200.0.0/20", "10.200.128.0/20", "10.200.255.252/30"), "10.201.0.0/20"},
		"one address of it is taken": {prefixes("10.200.255.254/32"), "10.201.0.0/20"},
		"a large network":            {prefixes("10.192.0.0/11"), "10.224.0.0/20"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Config{}.withFreeRanges(test.taken)
			if err != nil {
				t.Fatal(err)
			}
			if config.ServiceCIDR.String() != test.services {
				t.Errorf("Services get %s, want %s", config.ServiceCIDR, test.services)
			}
			if clash := overlap(config.ranges(), test.taken); clash != nil {
				t.Errorf("%v overlaps %s", config.ranges(), clash)
			}
		})
	}
}

func TestChosenRangesAreKeptOrRefused(t *testing.T) {
	chosen := Config{PodCIDR: netip.MustParsePrefix("10.9.0.0/16")}
	config, err := chosen.withFreeRanges(nil)
	if err != nil || config.PodCIDR != chosen.PodCIDR {
		t.Errorf("got %s and %v, want the chosen range", config.PodCIDR, err)
	}
	if _, err := chosen.withFreeRanges(prefixes("10.9.7.0/24")); err == nil {
		t.Error("a range in use was accepted")
	}
}

func TestNoRangeIsFree(t *testing.T) {
	if _, err := (Config{}).withFreeRanges(prefixes("10.0.0.0/8")); err == nil {
		t.Error("want an error where all of 10.0.0.0/8 is routed")
	}
}

func TestAddressesOfANode(t *testing.T) {
	config := rangesOf(200)
	for got, want := range map[netip.Addr]string{
		config.hostIP(): "10.200.255.253", config.nodeIP(): "10.200.255.254",
		config.apiServiceIP(): "10.200.0.1", config.dnsIP(): "10.200.0.10",
	} {
		if got.String() != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
