package gpu

import "strconv"

// domains returns the NVLink domain of each device. If a fabric spans hosts, it is the cluster and
// clique, equal on every host. Otherwise the devices of this host that reach each other over links
// or switches share a name that starts with the host's. A device without links has none. O(devices
// + links).
func domains(host string, devices []RawDevice) []string {
	names := make([]string, len(devices))
	group := make([]int, len(devices)+1) // a forest of parents; the last stands for the switches
	switches := len(devices)
	for i := range group {
		group[i] = i
	}
	root := func(i int) int {
		for group[i] != i {
			group[i] = group[group[i]]
			i = group[i]
		}
		return i
	}
	byBus := map[string]int{}
	for i, d := range devices {
		byBus[d.Bus] = i
	}
	linked := make([]bool, len(devices))
	for i, d := range devices {
		for _, end := range d.Links {
			other, known := byBus[end]
			if end == "switch" {
				other, known = switches, true
			}
			if !known || other == i {
				continue
			}
			linked[i] = true
			if other != switches {
				linked[other] = true
			}
			// The lowest device is the root; the switches are a root only where no device is.
			a, b := root(i), root(other)
			group[max(a, b)] = min(a, b)
		}
	}
	for i, d := range devices {
		switch {
		case d.Cluster != "":
			names[i] = d.Cluster + "." + strconv.FormatUint(uint64(d.Clique), 10)
		case linked[i]:
			names[i] = host + "/" + strconv.Itoa(root(i))
		}
	}
	return names
}
