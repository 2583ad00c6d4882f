package sinfo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/pkg/cluster"
)

// kind says whether a field keeps nodes apart that differ in it.
type kind uint8

const (
	ofGroup     kind = iota // counts nodes of the line
	ofPartition             // keeps partitions apart
	ofNode                  // keeps nodes apart
	ofSize                  // shows the least value, and a plus if nodes differ
)

// field writes one property of a line: by its letter of -o, or by a name of -O.
type field struct {
	letter byte
	names  string
	title  string
	kind   kind
	write  func(l *listing, r *row) string
}

// letters and names list the fields, for the documentation.
func letters() string {
	list := make([]byte, len(allFields))
	for i, f := range allFields {
		list[i] = f.letter
	}
	return "Letters of `-o`: " + slurmcmd.ListLetters(list) + "."
}

func names() string {
	list := make([]string, len(allFields))
	for i, f := range allFields {
		list[i] = f.names
	}
	return "Fields of `-O`, in any case: " + slurmcmd.ListNames(list) + "."
}

// fieldFor finds the field of a column; nil if unknown.
func fieldFor(c slurmcmd.Column) *field {
	plain := slurmcmd.PlainName(c.Name)
	i := slices.IndexFunc(allFields, func(f field) bool {
		if c.Name != "" {
			return slices.Contains(strings.Fields(f.names), plain)
		}
		return f.letter == c.Letter && c.Letter != 0
	})
	if i < 0 {
		return nil
	}
	return &allFields[i]
}

var allFields = slices.Concat(partitionFields(), nodeFields(), sizeFields(), groupFields())

// first returns a writer of a property of the first node; "n/a" without nodes.
func first(of func(l *listing, n *greylagv1.Node) string) func(*listing, *row) string {
	return func(l *listing, r *row) string {
		if len(r.nodes) == 0 {
			return "n/a"
		}
		return of(l, r.nodes[0])
	}
}

func node(of func(n *greylagv1.Node) string) func(*listing, *row) string {
	return first(func(_ *listing, n *greylagv1.Node) string { return of(n) })
}

func part(of func(p *cluster.Partition) string) func(*listing, *row) string {
	return func(_ *listing, r *row) string { return of(r.part) }
}

func fixed(word string) func(*listing, *row) string {
	return func(*listing, *row) string { return word }
}

func partitionFields() []field {
	return []field{
		{'P', "partition", "PARTITION", ofPartition, part(func(p *cluster.Partition) string {
			if p.Default {
				return p.Name + "*"
			}
			return p.Name
		})},
		{'R', "partitionname", "PARTITION", ofPartition, part(func(p *cluster.Partition) string { return p.Name })},
		{'a', "available", "AVAIL", ofPartition, part(func(p *cluster.Partition) string {
			if p.Down {
				return "down"
			}
			return "up"
		})},
		{'l', "time", "TIMELIMIT", ofPartition, part(func(p *cluster.Partition) string {
			if p.MaxTime == 0 {
				return "infinite"
			}
			return slurmcmd.Length(p.MaxTime)
		})},
		{'L', "defaulttime", "DEFAULTTIME", ofPartition, part(func(p *cluster.Partition) string {
			if p.DefaultTime == 0 {
				return "n/a"
			}
			return slurmcmd.Length(p.DefaultTime)
		})},
		{'s', "size", "JOB_SIZE", ofPartition, part(func(p *cluster.Partition) string {
			if p.MaxNodes == 0 {
				return "1-infinite"
			}
			return fmt.Sprintf("1-%d", p.MaxNodes)
		})},
		{'p', "prioritytier", "PRIO_TIER", ofPartition, part(func(p *cluster.Partition) string { return strconv.Itoa(int(p.Priority)) })},
		{'I', "priorityjobfactor", "PRIO_JOB_FACTOR", ofPartition, fixed("1")},
		{'g', "groups", "GROUPS", ofPartition, fixed("all")}, {'h', "oversubscribe", "OVERSUBSCRIBE", ofPartition, fixed("NO")},
		{'r', "root", "ROOT", ofPartition, fixed("no")}, {'S', "allocnodes", "ALLOCNODES", ofPartition, fixed("all")},
		{'M', "preemptmode", "PREEMPT_MODE", ofPartition, fixed("REQUEUE")}, {'B', "maxcpuspernode", "MAX_CPUS_PER_NODE", ofPartition, fixed("UNLIMITED")},
		{'V', "cluster", "CLUSTER", ofGroup, func(l *listing, _ *row) string { return l.cluster }},
	}
}

func nodeFields() []field {
	features := node(func(n *greylagv1.Node) string { return slurmcmd.OrNull(strings.Join(n.Features, ",")) })
	return []field{
		{'t', "statecompact", "STATE", ofNode, node(func(n *greylagv1.Node) string { return slurmcmd.StateOf(n).Short() })},
		{'T', "statelong", "STATE", ofNode, node(func(n *greylagv1.Node) string { return slurmcmd.StateOf(n).Long() })},
		{0, "state", "STATE", ofNode, node(func(n *greylagv1.Node) string { return slurmcmd.StateOf(n).Short() })},
		{0, "statecomplete", "STATE", ofNode, node(func(n *greylagv1.Node) string { return strings.ToLower(slurmcmd.StateOf(n).Full()) })},
		{'n', "nodehost", "HOSTNAMES", ofNode, node((*greylagv1.Node).GetName)},
		{'o', "nodeaddr", "NODE_ADDR", ofNode, node(func(n *greylagv1.Node) string {
			host, _, _ := strings.Cut(n.Address, ":")
			return cmp.Or(host, n.Name)
		})},
		{'f', "features", "AVAIL_FEATURES", ofNode, features}, {'b', "featuresact", "ACTIVE_FEATURES", ofNode, features},
		{'G', "gres", "GRES", ofNode, node(slurmcmd.Gres)}, {0, "gresused", "GRES_USED", ofNode, node(slurmcmd.GresUsed)},
		{'E', "reason", "REASON", ofNode, node(func(n *greylagv1.Node) string {
			reason, _ := slurmcmd.ReasonOf(n)
			return cmp.Or(reason, "none")
		})},
		{'H', "timestamp", "TIMESTAMP", ofNode, first(func(l *listing, n *greylagv1.Node) string {
			_, since := slurmcmd.ReasonOf(n)
			return l.clock.Stamp(since, "Unknown")
		})},
		{'u', "user", "USER", ofNode, node(func(n *greylagv1.Node) string { return cmp.Or(n.ReasonBy, "Unknown") })},
		{'U', "userlong", "USER", ofNode, node(func(n *greylagv1.Node) string { return cmp.Or(n.ReasonBy, "Unknown") })},
		{'i', "reservation", "RESERVATION", ofNode, node(func(n *greylagv1.Node) string { return strings.Join(n.Reservations, ",") })},
		{'v', "version", "VERSION", ofNode, fixed(strings.TrimPrefix(slurmcmd.Version, "slurm "))},
		{'O', "cpusload cpuload", "CPU_LOAD", ofNode, fixed("N/A")}, {'e', "freemem", "FREE_MEM", ofNode, fixed("N/A")},
		{0, "allocmem", "ALLOCMEM", ofNode, node(func(n *greylagv1.Node) string { return strconv.FormatInt(n.MemoryUsed>>20, 10) })},
		{0, "comment", "COMMENT", ofNode, fixed(slurmcmd.Null)}, {0, "extra", "EXTRA", ofNode, fixed(slurmcmd.Null)}, {0, "port", "PORT", ofNode, fixed("0")},
	}
}

// least returns a writer of the least value of the nodes, with a plus if they differ.
func least(of func(n *greylagv1.Node) int64) func(*listing, *row) string {
	return func(_ *listing, r *row) string {
		if len(r.nodes) == 0 {
			return "0"
		}
		low, high := of(r.nodes[0]), of(r.nodes[0])
		for _, n := range r.nodes {
			low, high = min(low, of(n)), max(high, of(n))
		}
		text := strconv.FormatInt(low, 10)
		if high > low {
			text += "+"
		}
		return text
	}
}

func sizeFields() []field {
	cpus := least(func(n *greylagv1.Node) int64 { return int64(n.Cpus) })
	return []field{
		{'c', "cpus", "CPUS", ofSize, cpus},
		{'m', "memory", "MEMORY", ofSize, least(func(n *greylagv1.Node) int64 { return n.Memory >> 20 })},
		{'d', "disk", "TMP_DISK", ofSize, least(slurmcmd.TmpDiskMiB)}, {'w', "weight", "WEIGHT", ofSize, fixed("1")},
		{'X', "sockets", "SOCKETS", ofSize, fixed("1")}, {'Y', "cores", "CORES", ofSize, cpus}, {'Z', "threads", "THREADS", ofSize, fixed("1")},
		{'z', "socketcorethread", "S:C:T", ofSize, func(l *listing, r *row) string { return "1:" + cpus(l, r) + ":1" }},
	}
}

// counts adds up allocated, idle, other and all of a line.
func counts(r *row, of func(n *greylagv1.Node) (all, used int64)) (allocated, idle, other, total int64) {
	for _, n := range r.nodes {
		all, used := of(n)
		total += all
		allocated += used
		if slurmcmd.StateOf(n).Available() {
			idle += all - used
		} else {
			other += all - used
		}
	}
	return allocated, idle, other, total
}

func nodeCount(n *greylagv1.Node) (all, used int64) {
	if n.Jobs > 0 {
		return 1, 1
	}
	return 1, 0
}

func cpuCount(n *greylagv1.Node) (all, used int64) { return int64(n.Cpus), int64(n.CpusUsed) }

func groupFields() []field {
	four := func(of func(n *greylagv1.Node) (all, used int64)) func(*listing, *row) string {
		return func(_ *listing, r *row) string {
			a, i, o, t := counts(r, of)
			return fmt.Sprintf("%d/%d/%d/%d", a, i, o, t)
		}
	}
	return []field{
		{'D', "nodes", "NODES", ofGroup, func(_ *listing, r *row) string { return strconv.Itoa(len(r.nodes)) }},
		{'N', "nodelist", "NODELIST", ofGroup, func(_ *listing, r *row) string { return slurmcmd.Hosts(slurmcmd.NodeNames(r.nodes)) }},
		{'F', "nodeaiot", "NODES(A/I/O/T)", ofGroup, four(nodeCount)},
		{'C', "cpusstate", "CPUS(A/I/O/T)", ofGroup, four(cpuCount)},
		{'A', "nodeai", "NODES(A/I)", ofGroup, func(_ *listing, r *row) string {
			a, i, _, _ := counts(r, nodeCount)
			return fmt.Sprintf("%d/%d", a, i)
		}},
	}
}
