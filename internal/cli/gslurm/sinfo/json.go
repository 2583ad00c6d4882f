package sinfo

import (
	"cmp"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
)

type rowJSON struct {
	Node struct {
		State []string `json:"state"`
	} `json:"node"`
	Nodes struct {
		Allocated int64    `json:"allocated"`
		Idle      int64    `json:"idle"`
		Other     int64    `json:"other"`
		Total     int64    `json:"total"`
		Hostnames []string `json:"hostnames"`
		Addresses []string `json:"addresses"`
		Nodes     []string `json:"nodes"`
	} `json:"nodes"`
	CPUs struct {
		Allocated int64 `json:"allocated"`
		Idle      int64 `json:"idle"`
		Other     int64 `json:"other"`
		Total     int64 `json:"total"`
		Minimum   int64 `json:"minimum"`
		Maximum   int64 `json:"maximum"`
	} `json:"cpus"`
	Memory struct {
		Minimum   int64 `json:"minimum"` // MiB
		Maximum   int64 `json:"maximum"`
		Allocated int64 `json:"allocated"`
	} `json:"memory"`
	Features struct {
		Total  string `json:"total"`
		Active string `json:"active"`
	} `json:"features"`
	Gres struct {
		Total string `json:"total"`
		Used  string `json:"used"`
	} `json:"gres"`
	Cluster string `json:"cluster"`
	Reason  struct {
		Description string          `json:"description"`
		Time        slurmcmd.Number `json:"time"`
		User        string          `json:"user"`
	} `json:"reason"`
	Reservation string `json:"reservation"`
	Partition   struct {
		Name     string `json:"name"`
		Maximums struct {
			Time slurmcmd.Number `json:"time"`
		} `json:"maximums"`
		Defaults struct {
			Time slurmcmd.Number `json:"time"`
		} `json:"defaults"`
		Partition struct {
			State []string `json:"state"`
		} `json:"partition"`
	} `json:"partition"`
}

// printJSON prints lines in the schema of sinfo --json.
func (c command) printJSON(l *listing, rows []*row) error {
	all := []rowJSON{}
	for _, r := range rows {
		all = append(all, jsonOf(l, r))
	}
	return c.WriteJSON(struct {
		Rows []rowJSON `json:"sinfo"`
		slurmcmd.MetaJSON
	}{all, c.Meta(l.cluster)})
}

func jsonOf(l *listing, r *row) rowJSON {
	out := rowJSON{Cluster: l.cluster}
	n, cpus := &out.Nodes, &out.CPUs
	n.Allocated, n.Idle, n.Other, n.Total = counts(r, nodeCount)
	cpus.Allocated, cpus.Idle, cpus.Other, cpus.Total = counts(r, cpuCount)
	n.Nodes, n.Hostnames, n.Addresses = slurmcmd.NodeNames(r.nodes), slurmcmd.NodeNames(r.nodes), []string{}
	out.Partition.Name = r.part.Name
	out.Partition.Maximums.Time, out.Partition.Defaults.Time = slurmcmd.Minutes(r.part.MaxTime), slurmcmd.Minutes(r.part.DefaultTime)
	out.Partition.Partition.State = []string{map[bool]string{true: "DOWN", false: "UP"}[r.part.Down]}
	out.Node.State = []string{}
	for i, m := range r.nodes {
		host, _, _ := strings.Cut(m.Address, ":")
		n.Addresses = append(n.Addresses, cmp.Or(host, m.Name))
		mib := m.Memory >> 20
		if i == 0 {
			cpus.Minimum, out.Memory.Minimum = int64(m.Cpus), mib
			describe(&out, m)
		}
		cpus.Minimum, cpus.Maximum = min(cpus.Minimum, int64(m.Cpus)), max(cpus.Maximum, int64(m.Cpus))
		out.Memory.Minimum, out.Memory.Maximum = min(out.Memory.Minimum, mib), max(out.Memory.Maximum, mib)
		out.Memory.Allocated += m.MemoryUsed >> 20
	}
	return out
}

// describe sets what all nodes of a line have in common.
func describe(out *rowJSON, n *greylagv1.Node) {
	out.Node.State = strings.Split(slurmcmd.StateOf(n).Full(), "+")
	out.Features.Total = strings.Join(n.Features, ",")
	out.Features.Active = out.Features.Total
	out.Gres.Total, out.Gres.Used = strings.TrimPrefix(slurmcmd.Gres(n), slurmcmd.Null), strings.TrimPrefix(slurmcmd.GresUsed(n), slurmcmd.Null)
	reason, since := slurmcmd.ReasonOf(n)
	out.Reason.Description, out.Reason.User, out.Reason.Time = reason, n.ReasonBy, slurmcmd.Stamped(since)
	out.Reservation = strings.Join(n.Reservations, ",")
}
