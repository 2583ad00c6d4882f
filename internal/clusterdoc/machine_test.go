package clusterdoc

import (
	"errors"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/config/strict"
)

func TestReadMachine(t *testing.T) {
	nodes, topology, err := ReadMachine("f.toml", []byte(`
topology = "fabric.yaml"
[[node]]
names = ["a[1-2]"]
cpus = 64
memory = "512GiB"
gpus = 4
gpu_type = "h100"
nvlink_domains = 2
[[node]]
names = ["b1", "b2"]
cpus = 72
gpus = 4
nvlink_domain = "rack"
`))
	if err != nil || topology != "fabric.yaml" || len(nodes) != 4 {
		t.Fatal(nodes, topology, err)
	}
	if a := nodes[0].GPUs; a[1].Domain != "a1/0" || a[2].Domain != "a1/1" || nodes[3].GPUs[0].Domain != "rack" {
		t.Error(a, nodes[3])
	}
}

func TestReadMachineFaults(t *testing.T) {
	_, _, err := ReadMachine("f.toml", []byte(`
[[node]]
names = ["a[1-2]", "a2", "x["]
cpus = 0
gpus = 4
nvlink_domains = 9
colour = "red"
[[node]]
cpus = 1
`))
	var faults strict.Faults
	if !errors.As(err, &faults) || len(faults) != 6 {
		t.Fatal(err)
	}
	for i, want := range []string{"described twice", "x[", "cpus", "nvlink_domains", "unknown key", "contains no node"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("fault %d: no %q in\n%s", i, want, err)
		}
	}
	if _, _, err := ReadMachine("f.toml", nil); err == nil {
		t.Error("a machine without nodes is accepted")
	}
}

func FuzzFleet(f *testing.F) {
	f.Add([]byte("[[node]]\nnames=[\"a[1-9]\"]\ncpus=1\ngpus=8\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		nodes, _, err := ReadMachine("f.toml", text)
		if (err == nil) == (len(nodes) == 0) {
			t.Fatal(nodes, err)
		}
	})
}
