package cluster

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestValidateFillsIn(t *testing.T) {
	s := JobSpec{}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if r := s.Request; r.Nodes != 1 || r.TasksPerNode != 1 || r.CPUsPerTask != 1 || r.CPUsPerNode() != 1 {
		t.Errorf("filled in %+v", r)
	}
	s = JobSpec{Request: Request{GPUs: 12, MemPerGPU: GiB}}
	if err := s.Validate(); err != nil || s.Request.Nodes != 0 || s.Request.TotalGPUs() != 12 || s.Request.MemoryOn(3) != 3*GiB {
		t.Errorf("%+v, %v", s.Request, err)
	}
}

func TestValidateRefuses(t *testing.T) {
	for want, change := range map[string]func(*JobSpec){
		"control character":         func(s *JobSpec) { s.Name = "a\nb" },
		"not valid UTF-8":           func(s *JobSpec) { s.Comment = "\xff" },
		"job name is 257":           func(s *JobSpec) { s.Name = strings.Repeat("a", 257) },
		"is not absolute":           func(s *JobSpec) { s.WorkDir = "home" },
		"time limit -1ns":           func(s *JobSpec) { s.TimeLimit = -1 },
		"array size":                func(s *JobSpec) { s.ArraySize = -1 },
		"script arguments":          func(s *JobSpec) { s.Args = make([]string, 1025) },
		"argument 1 holds":          func(s *JobSpec) { s.Args = []string{"a\x00"} },
		"nodes: -1":                 func(s *JobSpec) { s.Request.Nodes = -1 },
		"memory per CPU":            func(s *JobSpec) { s.Request.MemPerCPU = math.MaxInt64 },
		"at most 65536 CPUs":        func(s *JobSpec) { s.Request.TasksPerNode, s.Request.CPUsPerTask = 65536, 65536 },
		"GPUs each: at most":        func(s *JobSpec) { s.Request.Nodes, s.Request.GPUsPerNode = 1<<20, 1<<16 },
		"of memory on a node":       func(s *JobSpec) { s.Request.MemPerCPU, s.Request.CPUsPerTask = 1<<50, 2 },
		"contradict":                func(s *JobSpec) { s.Request.GPUs, s.Request.GPUsPerNode = 3, 2 },
		"too many GPU types":        func(s *JobSpec) { s.Request.Features = make([]string, 65) },
		"unknown kind":              func(s *JobSpec) { s.Depends = []Dependency{{Kind: 77}} },
		"want a job ID":             func(s *JobSpec) { s.Depends = []Dependency{{Kind: AfterOK}} },
		"must not lie before":       func(s *JobSpec) { s.Deadline = -1 },
		"signal 65":                 func(s *JobSpec) { s.Signal.Number = 65 },
		"1025 dependencies":         func(s *JobSpec) { s.Depends = make([]Dependency, 1025) },
		"mounts require an image":   func(s *JobSpec) { s.Mounts = []Mount{{"/a", "/b", false}} },
		"cannot mount over /etc":    func(s *JobSpec) { s.Mounts = []Mount{{"/a", "/srv/../etc/x", false}} },
		"cannot mount over / of":    func(s *JobSpec) { s.Mounts = []Mount{{"/a", "/..", false}} },
		"without control":           func(s *JobSpec) { s.Mounts = []Mount{{"/a\x1b", "/b", false}} },
		"have the target":           func(s *JobSpec) { s.Mounts = []Mount{{"/a", "/b", false}, {"/c", "/b/", true}} },
		"65 mounts":                 func(s *JobSpec) { s.Mounts = make([]Mount, 65) },
		"paths of the mounts have":  func(s *JobSpec) { s.Mounts = longMounts() },
		"memory per GPU: -1 is out": func(s *JobSpec) { s.Request.MemPerGPU = -1 },
	} {
		s := JobSpec{TimeLimit: time.Hour}
		change(&s)
		if err := s.Validate(); !errors.Is(err, ErrInvalidJob) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// longMounts returns valid mounts that are too long together.
func longMounts() (all []Mount) {
	for i := range 5 {
		all = append(all, Mount{"/" + strings.Repeat("a", 4000), fmt.Sprintf("/data/%d", i), false})
	}
	return all
}

func TestPolicy(t *testing.T) {
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if part, known := p.Partition(""); !known || part.Name != "main" {
		t.Errorf("default partition %+v", part)
	}
	if q, known := p.QOSNamed(""); !known || q.Name != "standard" {
		t.Errorf("default qos %+v", q)
	}
	for want, change := range map[string]func(*Policy){
		"0 partitions":            func(p *Policy) { p.Partitions = nil },
		"one partition has no":    func(p *Policy) { p.Partitions[0].Name = "" },
		"two partitions":          func(p *Policy) { p.Partitions = append(p.Partitions, p.Partitions[0]) },
		"is the default one too":  func(p *Policy) { p.Partitions = append(p.Partitions, Partition{Name: "x", Default: true}) },
		"is above the limit":      func(p *Policy) { p.Partitions[0].MaxTime = time.Minute },
		"time -1ns":               func(p *Policy) { p.Partitions[0].MaxTime = -1 },
		"a CPU: out of range":     func(p *Policy) { p.Partitions[0].MemPerCPU = -1 },
		"a GPU: out of range":     func(p *Policy) { p.Partitions[0].MemPerGPU = 1 << 60 },
		"two qos":                 func(p *Policy) { p.QOS = append(p.QOS, p.QOS[0]) },
		"qos \"gold\" does not":   func(p *Policy) { p.DefaultQOS = "gold" },
		"qos \"batch\": time":     func(p *Policy) { p.QOS[3].MaxTime = -1 },
		"node timeout":            func(p *Policy) { p.NodeTimeout = -1 },
		"largest array":           func(p *Policy) { p.MaxArray = 0 },
		"at most 0 jobs":          func(p *Policy) { p.MaxJobs = 0 },
		"-1 restarts":             func(p *Policy) { p.MaxRestarts = -1 },
		"user \"a\\nb\" holds":    func(p *Policy) { p.Admins = []string{"a\nb"} },
		"one account has no name": func(p *Policy) { p.Partitions[0].AllowAccounts = []string{""} },
	} {
		p := DefaultPolicy()
		change(&p)
		if err := p.Validate(); !errors.Is(err, ErrInvalidPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestNodeState(t *testing.T) {
	gpus := []GPU{{Index: 0}, {Index: 1, Fault: "XID 79"}}
	for _, c := range []struct {
		node Node
		use  NodeUse
		want NodeState
	}{
		{Node{CPUs: 4}, NodeUse{}, NodeIdle},
		{Node{CPUs: 4}, NodeUse{Jobs: 1, CPUs: 1}, NodeMixed},
		{Node{CPUs: 4}, NodeUse{Jobs: 1, CPUs: 4}, NodeAllocated},
		{Node{CPUs: 4, GPUs: gpus}, NodeUse{Jobs: 1, GPUs: []bool{true}}, NodeAllocated},
		{Node{CPUs: 4, GPUs: gpus}, NodeUse{Jobs: 1}, NodeMixed},
		{Node{CPUs: 4}, NodeUse{Jobs: 1, Whole: true}, NodeAllocated},
		{Node{CPUs: 4, Drain: true}, NodeUse{Jobs: 1}, NodeDraining},
		{Node{CPUs: 4, Fault: "disk"}, NodeUse{}, NodeDrained},
		{Node{CPUs: 4, Orphans: 1}, NodeUse{}, NodeDraining},
		{Node{CPUs: 4, Liveness: Silent, Drain: true}, NodeUse{}, NodeUnknown},
		{Node{CPUs: 4, Liveness: Dead}, NodeUse{Jobs: 1}, NodeDown},
	} {
		if got := c.node.State(c.use); got != c.want || got.String() == "?" {
			t.Errorf("%+v with %+v is %s, want %s", c.node, c.use, got, c.want)
		}
		if usable := c.node.Usable(); usable != (c.want <= NodeAllocated) {
			t.Errorf("%+v is %s and usable %v", c.node, c.want, usable)
		}
	}
}
