package scontrol

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// The beginnings of messages when no controller answers.
const (
	loadNodes      = "slurm_load_node error: "
	loadPartitions = "slurm_load_partitions error: "
	loadConfig     = "slurm_load_ctl_conf error: "
	loadLicences   = "slurm_load_licenses error: "
)

func (c command) showNodes(ctx context.Context, args []string) error {
	for _, list := range args {
		if _, err := hostlist.Expand(list); err != nil {
			return &ui.UsageError{Problem: "invalid node list: " + list}
		}
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadNodes, err)
	}
	defer cl.Close()
	answer, err := cl.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: args})
	if err != nil {
		return slurmcmd.Unreachable(loadNodes, err)
	}
	if len(answer.Nodes) == 0 && len(args) > 0 {
		return slurmcmd.Message("Node " + ui.Printable(args[0]) + " not found")
	}
	if c.json {
		return c.nodesJSON(ctx, cl, answer.Nodes)
	}
	var records []record
	for _, n := range answer.Nodes {
		records = append(records, c.nodeRecord(n))
	}
	return c.writeRecords(records)
}

// nodeRecord writes a node as scontrol show node does.
func (c command) nodeRecord(n *greylagv1.Node) record {
	k := c.Clock()
	number := func(n int32) string { return strconv.Itoa(int(n)) }
	mib := func(b int64) string { return strconv.FormatInt(b>>20, 10) }
	features := slurmcmd.OrNull(strings.Join(n.Features, ","))
	host, _, _ := strings.Cut(n.Address, ":")
	used, busy := "", time.Time{} // the end of the last job is not kept
	if n.Jobs > 0 {
		busy = c.Now()
		used = slurmcmd.TRES(int64(n.CpusUsed), cluster.Bytes(n.MemoryUsed), 1, int64(len(n.GpusUsed)), "")
	}
	r := record{
		pairs("NodeName", n.Name, "CoresPerSocket", number(n.Cpus)),
		pairs("CPUAlloc", number(n.CpusUsed), "CPUEfctv", number(n.Cpus), "CPUTot", number(n.Cpus), "CPULoad", "N/A"),
		pairs("AvailableFeatures", features), pairs("ActiveFeatures", features),
		pairs("Gres", slurmcmd.Gres(n)),
	}
	if c.detail {
		r = append(r, pairs("GresUsed", slurmcmd.GresUsed(n)))
	}
	r = append(r,
		pairs("NodeAddr", cmp.Or(host, n.Name), "NodeHostName", n.Name, "Version", strings.TrimPrefix(slurmcmd.Version, "slurm ")),
		pairs("RealMemory", mib(n.Memory), "AllocMem", mib(n.MemoryUsed), "FreeMem", "N/A", "Sockets", "1", "Boards", "1"),
		pairs("State", slurmcmd.StateOf(n).Full(), "ThreadsPerCore", "1", "TmpDisk", strconv.FormatInt(slurmcmd.TmpDiskMiB(n), 10), "Weight", "1", "Owner", "N/A", "MCS_label", "N/A"),
		pairs("Partitions", slurmcmd.OrNull(strings.Join(n.Partitions, ","))),
		pairs("BootTime", "None", "SlurmdStartTime", k.Stamp(n.Registered, "None")),
		pairs("LastBusyTime", k.Format(busy, "Unknown"), "ResumeAfterTime", "None"),
		pairs("CfgTRES", slurmcmd.TRES(int64(n.Cpus), cluster.Bytes(n.Memory), 1, int64(len(n.Gpus)), "")),
		pairs("AllocTRES", slurmcmd.OrNull(used)),
	)
	if reason, since := slurmcmd.ReasonOf(n); reason != "" {
		by := fmt.Sprintf(" [%s@%s]", cmp.Or(n.ReasonBy, "greylag"), k.Format(ui.TimeOf(since), "Unknown"))
		r = append(r, pairs("Reason", reason+by))
	}
	return r
}

func (c command) showPartitions(ctx context.Context, args []string) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadPartitions, err)
	}
	defer cl.Close()
	policy, err := slurmcmd.Policy(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadPartitions, err)
	}
	nodes, err := cl.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{})
	if err != nil {
		return slurmcmd.Unreachable(loadPartitions, err)
	}
	var records []record
	var chosen []cluster.Partition
	for _, p := range policy.Partitions {
		if len(args) == 0 || slices.Contains(args, p.Name) {
			chosen = append(chosen, p)
			records = append(records, partitionRecord(&p, slurmcmd.Members(nodes.Nodes, p.Name)))
		}
	}
	switch {
	case len(records) == 0 && len(args) > 0:
		return slurmcmd.Message("Partition " + ui.Printable(args[0]) + " not found")
	case c.json:
		return c.partitionsJSON(ctx, cl, chosen, nodes.Nodes)
	}
	return c.writeRecords(records)
}

// partitionRecord writes a partition as scontrol show partition does. No value is empty: callers split
// each word at its sign.
func partitionRecord(p *cluster.Partition, nodes []*greylagv1.Node) record {
	yes := func(on bool) string { return map[bool]string{true: "YES", false: "NO"}[on] }
	orUnlimited := func(n int32) string {
		if n == 0 {
			return "UNLIMITED"
		}
		return strconv.Itoa(int(n))
	}
	state, defaultTime := "UP", "NONE"
	if p.Down {
		state = "DOWN"
	}
	if p.DefaultTime > 0 {
		defaultTime = slurmcmd.LongLength(p.DefaultTime)
	}
	memory := pairs("DefMemPerNode", "UNLIMITED", "MaxMemPerNode", "UNLIMITED")
	if p.MemPerCPU > 0 {
		memory = pairs("DefMemPerCPU", strconv.FormatInt(int64(p.MemPerCPU/cluster.MiB), 10), "MaxMemPerNode", "UNLIMITED")
	}
	cpus, size, gpus := int64(0), cluster.Bytes(0), int64(0)
	for _, n := range nodes {
		cpus, size, gpus = cpus+int64(n.Cpus), size+cluster.Bytes(n.Memory), gpus+int64(len(n.Gpus))
	}
	return record{
		pairs("PartitionName", p.Name),
		pairs("AllowGroups", "ALL", "AllowAccounts", cmp.Or(strings.Join(p.AllowAccounts, ","), "ALL"), "AllowQos", "ALL"),
		pairs("AllocNodes", "ALL", "Default", yes(p.Default), "QoS", "N/A"),
		pairs("DefaultTime", defaultTime, "DisableRootJobs", "NO", "ExclusiveUser", "NO", "ExclusiveTopo", "NO", "GraceTime", "0", "Hidden", "NO"),
		pairs("MaxNodes", orUnlimited(p.MaxNodes), "MaxTime", limitText(p.MaxTime), "MinNodes", "0", "LLN", "NO", "MaxCPUsPerNode", "UNLIMITED", "MaxCPUsPerSocket", "UNLIMITED"),
		pairs("Nodes", slurmcmd.OrNull(slurmcmd.Hosts(slurmcmd.NodeNames(nodes)))),
		pairs("PriorityJobFactor", "1", "PriorityTier", strconv.Itoa(int(p.Priority)), "RootOnly", "NO", "ReqResv", "NO", "OverSubscribe", "NO"),
		pairs("OverTimeLimit", "NONE", "PreemptMode", "REQUEUE"),
		pairs("State", state, "TotalCPUs", strconv.FormatInt(cpus, 10), "TotalNodes", strconv.Itoa(len(nodes)), "SelectTypeParameters", "NONE"),
		pairs("JobDefaults", slurmcmd.Null),
		memory,
		pairs("TRES", slurmcmd.TRES(cpus, size, int64(len(nodes)), gpus, "")),
	}
}

func (c command) showReservations(ctx context.Context, args []string) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable("slurm_load_reservations error: ", err)
	}
	defer cl.Close()
	answer, err := cl.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Reservations: true})
	if err != nil {
		return slurmcmd.Unreachable("slurm_load_reservations error: ", err)
	}
	k := c.Clock()
	var records []record
	for _, v := range answer.Reservations {
		if len(args) > 0 && !slices.Contains(args, v.Name) {
			continue
		}
		flags, state := "SPEC_NODES", "INACTIVE"
		if v.Maintenance {
			flags = "MAINT,SPEC_NODES"
		}
		if wire.Word(v.State) == "ACTIVE" {
			state = "ACTIVE"
		}
		start, end := ui.TimeOf(v.Start), ui.TimeOf(v.End)
		records = append(records, record{
			pairs("ReservationName", v.Name, "StartTime", k.Format(start, "Unknown"), "EndTime", k.Format(end, "Unknown"), "Duration", slurmcmd.LongLength(end.Sub(start))),
			pairs("Nodes", slurmcmd.OrNull(v.NodeList), "NodeCnt", strconv.Itoa(int(v.Nodes)), "CoreCnt", "0", "Features", slurmcmd.Null, "PartitionName", slurmcmd.Null, "Flags", flags),
			pairs("TRES", fmt.Sprintf("node=%d,gres/gpu=%d", v.Nodes, v.Gpus)),
			pairs("Users", slurmcmd.OrNull(strings.Join(v.Users, ",")), "Groups", slurmcmd.Null, "Accounts", slurmcmd.OrNull(strings.Join(v.Accounts, ",")), "Licenses", slurmcmd.Null, "State", state, "BurstBuffer", slurmcmd.Null),
			pairs("MaxStartDelay", slurmcmd.Null),
		})
	}
	switch {
	case len(records) == 0 && len(args) > 0:
		return slurmcmd.Message("Reservation " + ui.Printable(args[0]) + " not found")
	case len(records) == 0:
		return c.Write("No reservations in the system\n")
	}
	return c.writeRecords(records)
}

func (c command) showLicenses(ctx context.Context, args []string) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadLicences, err)
	}
	defer cl.Close()
	answer, err := cl.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Licences: true})
	if err != nil {
		return slurmcmd.Unreachable(loadLicences, err)
	}
	var records []record
	all := []licenceJSON{}
	for _, l := range answer.Licences {
		if len(args) == 0 || slices.Contains(args, l.Name) {
			all = append(all, licenceJSON{Name: l.Name, Total: l.Total, Used: l.Used, Free: max(l.Total-l.Used, 0)})
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			records = append(records, record{pairs("LicenseName", l.Name), pairs("Total", number(l.Total), "Used", number(l.Used), "Free", number(max(l.Total-l.Used, 0)), "Reserved", "0", "Remote", "no")})
		}
	}
	switch {
	case len(records) == 0 && len(args) > 0:
		return slurmcmd.Message("License " + ui.Printable(args[0]) + " not found")
	case c.json:
		return c.licencesJSON(ctx, cl, all)
	case len(records) == 0:
		return c.Write("No licenses configured in Slurm.\n")
	}
	return c.writeRecords(records)
}

// showConfig prints the settings that tools read.
func (c command) showConfig(ctx context.Context, _ []string) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadConfig, err)
	}
	defer cl.Close()
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return slurmcmd.Unreachable(loadConfig, err)
	}
	policy, err := slurmcmd.Policy(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadConfig, err)
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%d sec", int64(d/time.Second)) }
	rows := [][2]string{
		{"AccountingStorageType", "accounting_storage/slurmdbd"}, {"AuthType", "auth/slurm"}, {"ClusterName", status.Cluster}, {"GresTypes", "gpu"},
		{"JobRequeue", "1"}, {"KillWait", seconds(policy.KillWait)}, {"MaxArraySize", strconv.Itoa(int(policy.MaxArray))}, {"MaxJobCount", strconv.FormatInt(policy.MaxJobs, 10)},
		{"MinJobAge", seconds(slurmcmd.MinJobAge)}, {"MpiDefault", "pmi2"}, {"PreemptType", "preempt/qos"}, {"PriorityType", "priority/multifactor"},
		{"ProctrackType", "proctrack/cgroup"}, {"SchedulerType", "sched/backfill"}, {"SelectType", "select/cons_tres"}, {"SelectTypeParameters", "CR_CPU_MEMORY"},
		{"SLURM_VERSION", strings.TrimPrefix(slurmcmd.Version, "slurm ")}, {"SlurmdTimeout", seconds(policy.NodeTimeout)}, {"SwitchType", "(null)"}, {"TaskPlugin", "task/cgroup"},
	}
	for i, m := range status.Members {
		rows = append(rows, [2]string{fmt.Sprintf("SlurmctldHost[%d]", i), cmp.Or(m.Name, m.Id)})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", c.Clock().Format(c.Now(), ""))
	for _, r := range rows {
		fmt.Fprintf(&b, "%-23s = %s\n", r[0], r[1])
	}
	b.WriteString("\n")
	return c.Write(b.String())
}

// showHostnames prints the names of a host list, one a line; of the job's nodes without a list.
func (c command) showHostnames(_ context.Context, args []string) error {
	list := strings.Join(args, ",")
	if list == "" {
		list = cmp.Or(c.Variable("SLURM_JOB_NODELIST"), c.Variable("SLURM_NODELIST"))
	}
	names, err := hostlist.Expand(list)
	switch {
	case err != nil:
		return &ui.UsageError{Problem: "Invalid hostlist: " + list}
	case len(names) == 0:
		return &ui.UsageError{Problem: "host list is empty", Advice: "write scontrol show hostnames LIST, or set SLURM_JOB_NODELIST"}
	}
	return c.Write(strings.Join(names, "\n") + "\n")
}

// showHostlist prints names as a host list, in their order.
func (c command) showHostlist(_ context.Context, args []string) error {
	names, err := hostlist.Expand(strings.Join(args, ","))
	if err != nil || len(names) == 0 {
		return &ui.UsageError{Problem: "Invalid hostlist: " + strings.Join(args, ",")}
	}
	prefix := func(name string) string { return strings.TrimRight(name, "0123456789") }
	var lists []string
	for start, i := 0, 1; i <= len(names); i++ {
		if i == len(names) || prefix(names[i]) != prefix(names[start]) {
			lists = append(lists, hostlist.Compress(names[start:i]))
			start = i
		}
	}
	return c.Write(strings.Join(lists, ",") + "\n")
}

// showSortedHostlist prints names as a host list in the order of the names, each once.
func (c command) showSortedHostlist(_ context.Context, args []string) error {
	names, err := hostlist.Expand(strings.Join(args, ","))
	if err != nil || len(names) == 0 {
		return &ui.UsageError{Problem: "Invalid hostlist: " + strings.Join(args, ",")}
	}
	return c.Write(hostlist.Compress(names) + "\n")
}
