// Package clusterdoc reads and writes the documents of a cluster: its policy and its accounts, which
// are replicated state and not files of a host, and the machine file of a simulation.
//
// Reading finds every fault of a text, each with its line. It never decides whether a document fits
// the present state of a cluster.
package clusterdoc

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
)

// policy is the cluster's policy as a file. No host reads it: gctl apply sends it to the
// controllers, which replicate it.
type policy struct {
	Cluster     string        `toml:"cluster"`
	Admins      []string      `toml:"admins"`    // user names; "root" is uid 0
	Operators   []string      `toml:"operators"` // user names
	DefaultQOS  string        `toml:"default_qos"`
	NodeTimeout time.Duration `toml:"node_timeout"`
	// RebootTimeout is how long a node that was asked to reboot may take to return; 0: without limit.
	RebootTimeout time.Duration `toml:"reboot_timeout"`
	Fencing       bool          `toml:"fencing"` // the next attempt waits for proof that lost nodes are off
	KillWait      time.Duration `toml:"kill_wait"`
	MaxArray      int           `toml:"max_array"`
	MaxJobs       int           `toml:"max_jobs" was:"max_pending"`
	MaxRestarts   int           `toml:"max_restarts"`
	Retry         int           `toml:"retry"`    // own failures after which a job is requeued
	RetryOn       string        `toml:"retry_on"` // "exit", "exit:75", "oom", separated by commas
	// PreemptExempt is how long a job runs before it may be preempted, and MaxPreemptions how often it may be
	// in 24 hours; 0: no limit.
	PreemptExempt  time.Duration `toml:"preempt_exempt"`
	MaxPreemptions int           `toml:"max_preemptions"`
	// PreemptGrace is how long a preempted job that requested a signal runs on after it at most.
	PreemptGrace time.Duration `toml:"preempt_grace"`
	// InactiveWarning is after how long a job that is inactive, or has idle GPUs, gets a warning, and InactiveLimit after
	// how long an inactive one ends; 0: never.
	InactiveWarning time.Duration `toml:"inactive_warning"`
	InactiveLimit   time.Duration `toml:"inactive_limit"`
	// OutputWarn is the size of its output from which on a job gets a warning, and MaxOutput that with which it ends;
	// 0: none.
	OutputWarn cluster.Bytes `toml:"output_warn"`
	MaxOutput  cluster.Bytes `toml:"max_output"`
	Private    bool          `toml:"private"`
	// RequireAccount refuses jobs without an account once there are accounts.
	RequireAccount bool `toml:"require_account"`

	Partitions []partition `toml:"partition"`
	QOS        []qos       `toml:"qos"`

	Scheduling scheduling   `toml:"scheduling"`
	Topology   nearness     `toml:"topology"`
	FairShare  fairShare    `toml:"fair_share"`
	Credits    creditRules  `toml:"credits"`
	Elastic    elasticRules `toml:"elastic"`
	Burst      burstRules   `toml:"burst"`
	Licences   counts       `toml:"licences" empty:"omit"` // number of each
	// CheckpointStores are file systems to which only some jobs may write checkpoints at a time.
	CheckpointStores []checkpointStore `toml:"checkpoint_store" empty:"omit"`
	Budgets          []burstBudget     `toml:"burst_budget" empty:"omit"`
	// Staging names the credentials for copies of the files of jobs that have none of their own.
	Staging      []stagingCredentials `toml:"staging_credentials" empty:"omit"`
	Reservations []reservation        `toml:"reservation" empty:"omit"`
}

type stagingCredentials struct {
	Account string `toml:"account"`
	User    string `toml:"user"` // whose secret it is
	Secret  string `toml:"secret"`
}

type checkpointStore struct {
	Path  string `toml:"path"`  // of the directory where it is mounted
	Slots int    `toml:"slots"` // jobs that write at a time
}

// elasticRules are for extra nodes of elastic jobs.
type elasticRules struct {
	MinTime  time.Duration `toml:"min_time"` // in no plan when they are granted
	Grace    time.Duration `toml:"grace"`    // from the decision to reclaim one until SIGTERM
	Interval time.Duration `toml:"interval"` // from a change of a job's nodes until it may grow
}

type partition struct {
	Name          string        `toml:"name"`
	Nodes         []string      `toml:"nodes"` // host lists, or "ALL"
	Default       bool          `toml:"default"`
	Down          bool          `toml:"down"`
	MaxTime       time.Duration `toml:"max_time"`     // "0s": no limit
	DefaultTime   time.Duration `toml:"default_time"` // "0s": max_time
	MaxNodes      int           `toml:"max_nodes"`    // 0: no limit
	AllowAccounts []string      `toml:"allow_accounts"`
	Priority      int           `toml:"priority"`
	MemPerCPU     cluster.Bytes `toml:"mem_per_cpu"`
	MemPerGPU     cluster.Bytes `toml:"mem_per_gpu"`
	GPUShare      int           `toml:"gpu_share"` // 0: jobs share no GPU
	Burst         burstMode     `toml:"burst"`     // of jobs that request none
}

type qos struct {
	Name     string        `toml:"name"`
	Tier     int           `toml:"tier"`
	Open     bool          `toml:"open"` // any user may use it; otherwise it must be granted
	Priority int           `toml:"priority"`
	MaxTime  time.Duration `toml:"max_time"`
	// DefaultTime is the time limit of jobs that request none; 0: that of the partition.
	DefaultTime time.Duration `toml:"default_time"`
	// UsageExtra changes the usage of its jobs, in percent; -100: none.
	UsageExtra int       `toml:"usage_extra"`
	Limits     limitList `toml:"limits"`
	// Preempts lists the QOS of lower tiers whose jobs may be ended for one of this QOS that cannot
	// start otherwise. PreemptMode is what happens to a job of this QOS that is ended.
	Preempts    []string `toml:"preempts"`
	PreemptMode string   `toml:"preempt_mode" one:"off,requeue,cancel"`
	// PreemptExempt and PreemptGrace replace those of the policy for its jobs, unless they are 0.
	PreemptExempt time.Duration `toml:"preempt_exempt"`
	PreemptGrace  time.Duration `toml:"preempt_grace"`
	// InactiveWarning and InactiveLimit replace those of the policy for its jobs where they are set; 0: never.
	InactiveWarning override `toml:"inactive_warning" empty:"omit"`
	InactiveLimit   override `toml:"inactive_limit" empty:"omit"`
	// OutputWarn and MaxOutput do likewise.
	OutputWarn cluster.Bytes `toml:"output_warn"`
	MaxOutput  cluster.Bytes `toml:"max_output"`
	// Burst is the mode of jobs that request none.
	Burst burstMode `toml:"burst"`
	// BurstValue is what an hour less of waiting is worth for each GPU, and BurstMaxWait a wait from which on nodes are
	// leased at any cost within the budgets; 0: none.
	BurstValue   amount        `toml:"burst_value"`
	BurstMaxWait time.Duration `toml:"burst_max_wait"`
	// SpotShare is the largest percentage of its leased nodes that may be spot nodes.
	SpotShare spotShare `toml:"spot_share"`
}

// ReadPolicy reads the text of a policy file; faults contain name. Keys that the text does not set
// are as in [cluster.DefaultPolicy]; a list that it sets is replaced whole. The error is
// strict.Faults: all faults of the text and of the policy. The state accepts every policy that is
// returned without one.
func ReadPolicy(name string, text []byte) (cluster.Policy, error) {
	standard := cluster.DefaultPolicy()
	p := fileOf(&standard)
	var out cluster.Policy
	faults := strict.Decode(name, []strict.Source{{Name: name, Text: text}}, &p, func(c *strict.Checker) {
		p.check(c)
		out = p.policy()
		report(c, out.Faults())
	})
	if len(faults) > 0 {
		return cluster.Policy{}, faults
	}
	return out, nil
}

// report adds faults of a policy.
func report(c *strict.Checker, list []cluster.PolicyFault) {
	for _, f := range list {
		c.Fault(f.Key, "%s", f.Problem)
	}
}

// PlacePolicy returns faults of a policy with their lines in a file's text, which ReadPolicy has
// read.
func PlacePolicy(name string, text []byte, list []cluster.PolicyFault) strict.Faults {
	return strict.Locate(strict.Source{Name: name, Text: text}, func(c *strict.Checker) { report(c, list) })
}

// check requires numbers within the types of the policy.
func (p *policy) check(c *strict.Checker) {
	const most = math.MaxInt32
	c.Between("max_array", p.MaxArray, 0, most)
	c.Between("max_jobs", p.MaxJobs, 0, math.MaxInt)
	c.Between("max_restarts", p.MaxRestarts, 0, most)
	c.Between("max_preemptions", p.MaxPreemptions, 0, most)
	c.Between("retry", p.Retry, 0, cluster.MaxRetries)
	if _, err := cluster.ParseRetryCauses(p.RetryOn); err != nil {
		c.Fault("retry_on", "%v", err)
	}
	for i, part := range p.Partitions {
		at := "partition[" + strconv.Itoa(i) + "]"
		c.Between(at+".max_nodes", part.MaxNodes, 0, most)
		c.Between(at+".priority", part.Priority, -most, most)
		c.NodeLists(at+".nodes", part.Nodes)
	}
	p.checkBurst(c)
	for i, q := range p.QOS {
		at := "qos[" + strconv.Itoa(i) + "]"
		c.Between(at+".tier", q.Tier, -most, most)
		c.Between(at+".priority", q.Priority, -most, most)
		c.Between(at+".usage_extra", q.UsageExtra, -most, most)
	}
	for i, s := range p.CheckpointStores {
		c.Between("checkpoint_store["+strconv.Itoa(i)+"].slots", s.Slots, 1, most)
	}
	for i, r := range p.Reservations {
		at := "reservation[" + strconv.Itoa(i) + "]"
		c.NodeLists(at+".nodes", r.Nodes)
		switch {
		case r.Start == 0:
			c.Fault(at+".start", "is not set")
		case r.End == 0:
			c.Fault(at+".end", "is not set")
		case r.End <= r.Start:
			c.Fault(at+".end", "is not after the start")
		}
	}
	p.apart(c)
}

func (p *policy) policy() cluster.Policy {
	out := cluster.Policy{
		Cluster: p.Cluster, Admins: p.Admins, Operators: p.Operators, DefaultQOS: p.DefaultQOS,
		NodeTimeout: p.NodeTimeout, RebootTimeout: p.RebootTimeout, Fencing: p.Fencing, KillWait: p.KillWait, MaxArray: int32(p.MaxArray),
		MaxJobs: int64(p.MaxJobs), MaxRestarts: int32(p.MaxRestarts), Private: p.Private,
		PreemptExempt: p.PreemptExempt, MaxPreemptions: int32(p.MaxPreemptions), PreemptGrace: p.PreemptGrace, InactiveWarning: p.InactiveWarning, InactiveLimit: p.InactiveLimit, OutputWarn: p.OutputWarn, MaxOutput: p.MaxOutput,
		Elastic:    cluster.ElasticPolicy(p.Elastic),
		Scheduling: p.scheduling(), RequireAccount: p.RequireAccount, Credits: p.credits(), Burst: p.burst(),
	}
	out.Retry, _ = cluster.ParseRetryCauses(p.RetryOn) // checked before
	out.Retry.Limit = int32(p.Retry)
	for _, x := range p.Partitions {
		out.Partitions = append(out.Partitions, cluster.Partition{
			Name: x.Name, Nodes: x.Nodes, Default: x.Default, Down: x.Down, MaxTime: x.MaxTime, DefaultTime: x.DefaultTime,
			MaxNodes: int32(x.MaxNodes), AllowAccounts: x.AllowAccounts, Priority: int32(x.Priority), MemPerCPU: x.MemPerCPU, MemPerGPU: x.MemPerGPU, GPUShare: int32(x.GPUShare), Burst: cluster.BurstMode(x.Burst),
		})
	}
	for _, x := range p.QOS {
		out.QOS = append(out.QOS, cluster.QOS{
			Name: x.Name, Tier: int32(x.Tier), Priority: int32(x.Priority), MaxTime: x.MaxTime, DefaultTime: x.DefaultTime, UsageExtra: int32(x.UsageExtra), Limits: x.Limits,
			Preempts: orNone(x.Preempts), PreemptMode: preemptMode(x.PreemptMode), PreemptExempt: x.PreemptExempt, PreemptGrace: x.PreemptGrace, InactiveWarning: time.Duration(x.InactiveWarning), InactiveLimit: time.Duration(x.InactiveLimit),
			OutputWarn: x.OutputWarn, MaxOutput: x.MaxOutput, Open: x.Open,
			Burst: cluster.BurstMode(x.Burst), BurstValue: int64(x.BurstValue), BurstMaxWait: x.BurstMaxWait, MinOnDemand: int32(x.SpotShare),
		})
	}
	for _, x := range p.Staging {
		out.StagingCredentials = append(out.StagingCredentials, cluster.StagingCredentials(x))
	}
	for _, x := range p.CheckpointStores {
		out.CheckpointStores = append(out.CheckpointStores, cluster.CheckpointStore{Path: x.Path, Slots: int32(x.Slots)})
	}
	return out
}

// preemptMode reads a word that has been checked; off for "".
func preemptMode(word string) cluster.PreemptMode {
	mode, _ := cluster.ParsePreemptMode(word)
	return mode
}

func fileOf(p *cluster.Policy) policy {
	out := policy{
		Cluster: p.Cluster, Admins: p.Admins, Operators: p.Operators, DefaultQOS: p.DefaultQOS,
		NodeTimeout: p.NodeTimeout, RebootTimeout: p.RebootTimeout, Fencing: p.Fencing, KillWait: p.KillWait, MaxArray: int(p.MaxArray),
		MaxJobs: int(p.MaxJobs), MaxRestarts: int(p.MaxRestarts), Private: p.Private, RequireAccount: p.RequireAccount, Retry: int(p.Retry.Limit), RetryOn: p.Retry.Causes(),
		PreemptExempt: p.PreemptExempt, MaxPreemptions: int(p.MaxPreemptions), PreemptGrace: p.PreemptGrace, InactiveWarning: p.InactiveWarning, InactiveLimit: p.InactiveLimit, OutputWarn: p.OutputWarn, MaxOutput: p.MaxOutput,
		Elastic: elasticRules(p.Elastic),
	}
	out.schedulingOf(&p.Scheduling)
	out.creditsOf(&p.Credits)
	out.burstOf(&p.Burst)
	for _, x := range p.Partitions {
		out.Partitions = append(out.Partitions, partition{
			Name: x.Name, Nodes: x.Nodes, Default: x.Default, Down: x.Down, MaxTime: x.MaxTime, DefaultTime: x.DefaultTime,
			MaxNodes: int(x.MaxNodes), AllowAccounts: x.AllowAccounts, Priority: int(x.Priority), MemPerCPU: x.MemPerCPU, MemPerGPU: x.MemPerGPU, GPUShare: int(x.GPUShare), Burst: burstMode(x.Burst),
		})
	}
	for _, x := range p.QOS {
		out.QOS = append(out.QOS, qos{
			Name: x.Name, Tier: int(x.Tier), Priority: int(x.Priority), MaxTime: x.MaxTime, DefaultTime: x.DefaultTime, UsageExtra: int(x.UsageExtra), Limits: x.Limits,
			Preempts: x.Preempts, PreemptMode: x.PreemptMode.String(), PreemptExempt: x.PreemptExempt, PreemptGrace: x.PreemptGrace, InactiveWarning: override(x.InactiveWarning), InactiveLimit: override(x.InactiveLimit),
			OutputWarn: x.OutputWarn, MaxOutput: x.MaxOutput, Open: x.Open,
			Burst: burstMode(x.Burst), BurstValue: amount(x.BurstValue), BurstMaxWait: x.BurstMaxWait, SpotShare: spotShare(x.MinOnDemand),
		})
	}
	for _, x := range p.StagingCredentials {
		out.Staging = append(out.Staging, stagingCredentials(x))
	}
	for _, x := range p.CheckpointStores {
		out.CheckpointStores = append(out.CheckpointStores, checkpointStore{Path: x.Path, Slots: int(x.Slots)})
	}
	return out
}

// WritePolicy writes the policy as a file that ReadPolicy reads: every key, in one order, so that
// two of them can be compared line by line.
func WritePolicy(p *cluster.Policy) ([]byte, error) {
	text, err := toml.Marshal(strict.EncodeTable(reflect.ValueOf(fileOf(p))).Interface())
	if err != nil {
		return nil, fmt.Errorf("write policy: %w", err)
	}
	return text, nil
}
