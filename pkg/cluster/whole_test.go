package cluster

import "testing"

// TestTakes checks that an exclusive job counts against limits with all that its suitable nodes
// have.
func TestTakes(t *testing.T) {
	models := map[string][]NodeModel{
		"main": {{CPUs: 64, GPUs: []Amount{{"gpu:a100", 4}, {"gpu:h100", 2}}}, {CPUs: 32, GPUs: []Amount{{"gpu:a100", 8}}, Features: []string{"ib"}}, {CPUs: 128}},
		"big":  {{CPUs: 256, GPUs: []Amount{{"gpu:b200", 16}}}},
	}
	for i, c := range []struct {
		r                    Request
		resource             string
		takes, onNode, least int64
	}{
		{Request{Nodes: 2}, "gpu", 16, 8, 0},
		{Request{Nodes: 2}, "cpu", 256, 128, 64},
		{Request{Nodes: 2}, "gpu:a100", 16, 8, 0},
		{Request{Nodes: 2}, "gpu:b200", 0, 0, 0},
		{Request{Nodes: 2, MemPerNode: GiB}, "mem", 2048, 1024, 2048},
		{Request{Nodes: 2}, "node", 2, 0, 2},
		{Request{Nodes: 1, GPUsPerNode: 1, GPUTypes: []string{"h100"}}, "gpu", 6, 6, 6},
		{Request{Nodes: 1, GPUsPerNode: 1, GPUTypes: []string{"h100"}}, "gpu:a100", 4, 4, 4},
		{Request{Nodes: 1, GPUsPerNode: 1, GPUTypes: []string{"h100"}}, "cpu", 64, 64, 64},
		{Request{Nodes: 1, GPUsPerNode: 7}, "cpu", 32, 32, 32},
		{Request{Nodes: 3, Features: []string{"ib"}}, "gpu", 24, 8, 24},
		{Request{GPUs: 9}, "gpu", 16, 9, 12},                  // two nodes of each model
		{Request{GPUs: 7, Nodes: 1}, "gpu", 8, 8, 8},          // the smaller ones have too few
		{Request{Nodes: 1, GPUsPerNode: 9}, "gpu", 9, 9, 9},   // no node suits it
		{Request{Nodes: 1, CPUsPerTask: 100}, "gpu", 0, 0, 0}, // of the model that suits it
	} {
		r := c.r
		r.normalise()
		r.Exclusive = true
		s := JobSpec{Partition: "main", Request: r}
		least, _ := (&EffectiveLimit{Limit: Limit{Kind: MinTRESPerJob, Resource: c.resource}}).Short(&s, models)
		if takes, onNode := s.Takes(c.resource, models), s.TakesOnNode(c.resource, models); takes != c.takes || onNode != c.onNode || least != c.least {
			t.Errorf("%d: %s: %d, on a node %d, at least %d; want %d, %d, %d", i, c.resource, takes, onNode, least, c.takes, c.onNode, c.least)
		}
		for _, before := range []struct {
			exclusive bool
			models    map[string][]NodeModel
		}{{false, models}, {true, nil}} {
			s.Request.Exclusive = before.exclusive
			if got, want := s.Takes(c.resource, before.models), r.Requested(c.resource); got != want {
				t.Errorf("%d: %s, with nodes to itself %t: %d, want %d", i, c.resource, before.exclusive, got, want)
			}
		}
	}
	both := JobSpec{Partition: "main", OtherPartitions: []string{"big"}, Request: Request{Nodes: 1, Exclusive: true}}
	if got := both.Takes("gpu", models); got != 16 {
		t.Errorf("in one of two partitions: %d", got)
	}
}
