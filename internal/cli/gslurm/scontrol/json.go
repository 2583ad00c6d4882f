package scontrol

import (
	"cmp"
	"context"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

type nodeJSON struct {
	Name           string          `json:"name"`
	Hostname       string          `json:"hostname"`
	Address        string          `json:"address"`
	State          []string        `json:"state"`
	CPUs           int32           `json:"cpus"`
	AllocCPUs      int32           `json:"alloc_cpus"`
	IdleCPUs       int32           `json:"alloc_idle_cpus"`
	RealMemory     int64           `json:"real_memory"` // MiB
	AllocMemory    int64           `json:"alloc_memory"`
	Gres           string          `json:"gres"`
	GresUsed       string          `json:"gres_used"`
	Features       []string        `json:"features"`
	ActiveFeatures []string        `json:"active_features"`
	Partitions     []string        `json:"partitions"`
	Reason         string          `json:"reason"`
	ReasonUser     string          `json:"reason_set_by_user"`
	ReasonTime     slurmcmd.Number `json:"reason_changed_at"`
	TRES           string          `json:"tres"`
	TRESUsed       string          `json:"tres_used"`
	Version        string          `json:"version"`
	Weight         int             `json:"weight"`
}

func (c command) nodesJSON(ctx context.Context, cl ui.Cluster, nodes []*greylagv1.Node) error {
	name, err := clusterName(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadNodes, err)
	}
	all := []nodeJSON{}
	for _, n := range nodes {
		host, _, _ := strings.Cut(n.Address, ":")
		features := append([]string{}, n.Features...)
		reason, since := slurmcmd.ReasonOf(n)
		all = append(all, nodeJSON{
			Name: n.Name, Hostname: n.Name, Address: cmp.Or(host, n.Name), State: strings.Split(slurmcmd.StateOf(n).Full(), "+"),
			CPUs: n.Cpus, AllocCPUs: n.CpusUsed, IdleCPUs: n.Cpus - n.CpusUsed, RealMemory: n.Memory >> 20, AllocMemory: n.MemoryUsed >> 20,
			Gres: strings.TrimPrefix(slurmcmd.Gres(n), slurmcmd.Null), GresUsed: strings.TrimPrefix(slurmcmd.GresUsed(n), slurmcmd.Null),
			Features: features, ActiveFeatures: features, Partitions: append([]string{}, n.Partitions...), Reason: reason, ReasonUser: n.ReasonBy,
			ReasonTime: slurmcmd.Stamped(since), TRES: slurmcmd.TRES(int64(n.Cpus), cluster.Bytes(n.Memory), 1, int64(len(n.Gpus)), ""),
			TRESUsed: slurmcmd.TRES(int64(n.CpusUsed), cluster.Bytes(n.MemoryUsed), 1, int64(len(n.GpusUsed)), ""), Version: strings.TrimPrefix(slurmcmd.Version, "slurm "), Weight: 1,
		})
	}
	return c.WriteJSON(struct {
		Nodes []nodeJSON `json:"nodes"`
		slurmcmd.MetaJSON
	}{all, c.Meta(name)})
}

type partitionJSON struct {
	Name  string `json:"name"`
	Nodes struct {
		Configured string `json:"configured"`
		Total      int    `json:"total"`
	} `json:"nodes"`
	CPUs struct {
		Total int64 `json:"total"`
	} `json:"cpus"`
	Maximums struct {
		Time  slurmcmd.Number `json:"time"`
		Nodes slurmcmd.Number `json:"nodes"`
	} `json:"maximums"`
	Defaults struct {
		Time slurmcmd.Number `json:"time"`
	} `json:"defaults"`
	Partition struct {
		State []string `json:"state"`
	} `json:"partition"`
	Priority struct {
		Tier int32 `json:"tier"`
	} `json:"priority"`
}

func (c command) partitionsJSON(ctx context.Context, cl ui.Cluster, parts []cluster.Partition, nodes []*greylagv1.Node) error {
	name, err := clusterName(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadPartitions, err)
	}
	all := []partitionJSON{}
	for _, p := range parts {
		members := slurmcmd.Members(nodes, p.Name)
		one := partitionJSON{Name: p.Name}
		one.Nodes.Configured, one.Nodes.Total = slurmcmd.Hosts(slurmcmd.NodeNames(members)), len(members)
		for _, n := range members {
			one.CPUs.Total += int64(n.Cpus)
		}
		one.Maximums.Time, one.Maximums.Nodes = slurmcmd.Minutes(p.MaxTime), slurmcmd.Number{Infinite: p.MaxNodes == 0, Set: p.MaxNodes > 0, Number: int64(p.MaxNodes)}
		one.Defaults.Time, one.Priority.Tier = slurmcmd.Minutes(p.DefaultTime), p.Priority
		one.Partition.State = []string{map[bool]string{true: "DOWN", false: "UP"}[p.Down]}
		all = append(all, one)
	}
	return c.WriteJSON(struct {
		Partitions []partitionJSON `json:"partitions"`
		slurmcmd.MetaJSON
	}{all, c.Meta(name)})
}

type licenceJSON struct {
	Name     string `json:"LicenseName"`
	Total    int64  `json:"Total"`
	Used     int64  `json:"Used"`
	Free     int64  `json:"Free"`
	Remote   bool   `json:"Remote"`
	Reserved int64  `json:"Reserved"`
}

func (c command) licencesJSON(ctx context.Context, cl ui.Cluster, all []licenceJSON) error {
	name, err := clusterName(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadLicences, err)
	}
	return c.WriteJSON(struct {
		Licences   []licenceJSON   `json:"licenses"`
		LastUpdate slurmcmd.Number `json:"last_update"`
		slurmcmd.MetaJSON
	}{all, slurmcmd.Set(c.Now().Unix()), c.Meta(name)})
}
