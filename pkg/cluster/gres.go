package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Gres is a number of a generic resource of nodes. Jobs take a number of it; nothing binds single
// pieces to them. Lists are sorted by name, and each name is in them once: a node has one type of a
// resource.
type Gres struct {
	Name  string
	Type  string // of a request: "" for any
	Count int64  // in total, or requested of each node
}

const (
	// MaxGres is the number of generic resources that a node may have, and a job request.
	MaxGres = 4
	// MaxGresCount is the highest count of one.
	MaxGresCount = 1 << 30

	// GresTmp is the generic resource of local scratch space; its count is in MiB.
	GresTmp = "tmp"

	gresPrefix = "gres/"
	maxGresTag = 64 // characters of a name or type
)

// GresResource returns the name of a generic resource among trackable resources.
func GresResource(name string) string { return gresPrefix + name }

// String writes the form that --gres reads: nvme:2, or fpga:u250:1.
func (g Gres) String() string {
	if g.Type != "" {
		return fmt.Sprintf("%s:%s:%d", g.Name, g.Type, g.Count)
	}
	return fmt.Sprintf("%s:%d", g.Name, g.Count)
}

// Option writes the option that requests it: --gres=nvme:2, or --tmp=10G.
func (g Gres) Option() string {
	if g.Name == GresTmp && g.Type == "" {
		return "--tmp=" + (Bytes(g.Count) * MiB).String()
	}
	return "--gres=" + g.String()
}

// FormatGres writes the form that --gres reads; "" for none.
func FormatGres(list []Gres) string {
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ",")
}

// Serves reports whether a node's resource is the requested one, whatever the counts.
func (g *Gres) Serves(want *Gres) bool {
	return g.Name == want.Name && (want.Type == "" || want.Type == g.Type)
}

// CountGres returns how many of a list serve a requested resource.
func CountGres(list []Gres, want *Gres) int64 {
	for i := range list {
		if list[i].Serves(want) {
			return list[i].Count
		}
	}
	return 0
}

// HasGres reports whether a list has all that is requested.
func HasGres(list, want []Gres) bool {
	return !slices.ContainsFunc(want, func(w Gres) bool { return CountGres(list, &w) < w.Count })
}

// AddGres returns a new list with sign times the counts of another added, without types and zeros.
func AddGres(list, more []Gres, sign int64) []Gres {
	if len(more) == 0 {
		return list
	}
	list = slices.Clone(list)
	for _, m := range more {
		i, found := slices.BinarySearchFunc(list, m.Name, compareGres)
		if !found {
			list = slices.Insert(list, i, Gres{Name: m.Name})
		}
		list[i].Count += sign * m.Count
	}
	list = slices.DeleteFunc(list, func(g Gres) bool { return g.Count == 0 })
	return list[:len(list):len(list)]
}

// SortGres sorts a list by name.
func SortGres(list []Gres) {
	slices.SortFunc(list, func(a, b Gres) int { return strings.Compare(a.Name, b.Name) })
}

func compareGres(g Gres, name string) int { return strings.Compare(g.Name, name) }

// GresFault returns what is wrong with a list of generic resources; "" if nothing is.
func GresFault(list []Gres) string {
	if len(list) > MaxGres {
		return fmt.Sprintf("%d generic resources; the maximum is %d", len(list), MaxGres)
	}
	for i, g := range list {
		switch {
		case !isGresTag(g.Name) || g.Type != "" && !isGresTag(g.Type):
			return fmt.Sprintf("generic resource %q: invalid name or type: use 1 to %d letters, digits, dots, hyphens and underscores", Sanitize(g.String(), maxName), maxGresTag)
		case g.Name == ResourceGPU || g.Name == ResourceCPU || g.Name == ResourceMem || g.Name == ResourceNode || g.Name == "none":
			return fmt.Sprintf("%q is not a generic resource", g.Name)
		case g.Count < 1 || g.Count > MaxGresCount:
			return fmt.Sprintf("generic resource %q: a count of %d is out of range (1 to %d)", g.Name, g.Count, MaxGresCount)
		case i > 0 && list[i-1].Name == g.Name:
			return fmt.Sprintf("generic resource %q is named twice", g.Name)
		case i > 0 && list[i-1].Name > g.Name:
			return "generic resources are not sorted by name"
		}
	}
	return ""
}

// isGresTag reports whether a text is the name or type of a generic resource.
func isGresTag(text string) bool {
	return text != "" && len(text) <= maxGresTag && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	})
}
