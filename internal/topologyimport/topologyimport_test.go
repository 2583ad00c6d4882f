package topologyimport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// describe formats all that a reader returned for a file.
func describe(t Topology, err error) string {
	var out strings.Builder
	var faults strict.Faults
	if errors.As(err, &faults) {
		return err.Error() + "\n"
	} else if err != nil {
		return "no faults, but " + err.Error() + "\n"
	}
	for _, w := range t.Warnings {
		out.WriteString("warning: " + w.String() + "\n")
	}
	out.WriteString(Write(t.Switches))
	return out.String()
}

// TestTopologyFiles reads each file of testdata/topology.
func TestTopologyFiles(t *testing.T) {
	seen := 0
	datadriven.RunTest(t, "testdata/topology.txt", func(t *testing.T, d *datadriven.TestData) string {
		name := d.CmdArgs[0].Key
		text, err := os.ReadFile(filepath.Join("testdata/topology", name))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if filepath.Ext(name) == ".ib" {
			return describe(ReadIBNetDiscover(name, text))
		}
		return describe(Read(name, text))
	})
	if files, err := filepath.Glob("testdata/topology/*"); err != nil || len(files) != seen {
		t.Errorf("topology.txt reads %d of %d files, %v", seen, len(files), err)
	}
}

func TestTopologyIsWrittenAsItIsRead(t *testing.T) {
	text, err := os.ReadFile("testdata/topology/slurm.conf")
	if err != nil {
		t.Fatal(err)
	}
	first, err := Read("a.conf", text)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Read("a.conf", []byte(Write(first.Switches)))
	if err != nil || !reflect.DeepEqual(first.Switches, second.Switches) {
		t.Errorf("%v\nthen %v, %v", first.Switches, second.Switches, err)
	}
	if first.Lines["tux5"] != 3 {
		t.Errorf("tux5 is on line %d, want 3", first.Lines["tux5"])
	}
}

// TestLargeIBNetDiscover is a fabric of 2,048 hosts with 8 rails.
func TestLargeIBNetDiscover(t *testing.T) {
	var out strings.Builder
	const pods, hosts, rails = 32, 64, 8
	for pod := range pods {
		for rail := range rails {
			fmt.Fprintf(&out, "Switch 65 \"S-%d-%d\" # \"MF0;leaf%02d-%d:Q/U1\" lid 1\n", pod, rail, pod, rail)
			for h := range hosts {
				fmt.Fprintf(&out, "[%d] \"H-%d\"[1](1) # \"gpu%04d mlx5_%d\" lid 3 4xNDR\n", h+1, h, pod*hosts+h, rail)
			}
			for s := range 8 {
				fmt.Fprintf(&out, "[%d] \"S-s%d-%d\"[1] # \"spine\" lid 3 4xNDR\n", 65+s, rail, s)
			}
			out.WriteString("\n")
		}
	}
	made, err := ReadIBNetDiscover("ib", []byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	f, err := topology.NewFabric(made.Switches)
	if err != nil {
		t.Fatal(err)
	}
	if f.Levels() != 2 || f.Domains(0) != pods || f.Domains(1) != 1 || len(f.Hosts()) != pods*hosts || f.Bandwidth(0) != 400 {
		t.Errorf("%d levels, %d leaves, %d above, %d hosts, %d Gb/s; warnings %v", f.Levels(), f.Domains(0), f.Domains(1), len(f.Hosts()), f.Bandwidth(0), made.Warnings)
	}
}

// checkRead wants what is accepted to be a fabric that can be written and read again.
func checkRead(t *testing.T, made Topology, err error) {
	t.Helper()
	if err != nil {
		var faults strict.Faults
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("%T %v", err, err)
		}
		return
	}
	if _, err := topology.NewFabric(made.Switches); err != nil {
		t.Fatalf("accepted and no fabric: %v", err)
	}
	plain := !slices.ContainsFunc(made.Switches, func(s cluster.Switch) bool {
		return slices.ContainsFunc(slices.Concat([]string{s.Name}, s.Nodes, s.Children), func(n string) bool {
			return strings.ContainsAny(n, "#\\=[], \t\r\n") || strings.TrimSpace(n) != n || n == ""
		})
	})
	if !plain {
		return
	}
	r := &fabricReader{file: "again", at: map[string]int{}, measured: true}
	r.conf(Write(made.Switches))
	again, err := r.finish()
	if err != nil || len(again.Switches) != len(made.Switches) {
		t.Fatalf("written\n%s\nread %v, %v", Write(made.Switches), again.Switches, err)
	}
}

func FuzzTopology(f *testing.F) {
	files, err := filepath.Glob("testdata/topology/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(filepath.Ext(path), string(text))
		}
	}
	f.Fuzz(func(t *testing.T, ext, text string) {
		if ext == ".ib" {
			made, err := ReadIBNetDiscover("f", []byte(text))
			checkRead(t, made, err)
			return
		}
		made, err := Read("f"+ext, []byte(text))
		checkRead(t, made, err)
	})
}

// TestTopologyReference: the page of the topology files names the keys that the reader knows.
func TestTopologyReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/config/topology.md")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`known here: (.*)`)
	for file, content := range map[string]string{
		"t.conf": "SwitchName=s Zzz=1\n",
		"t.yaml": "- topology: t\n  zzz: 1\n  tree:\n    switches:\n      - switch: s\n        zzz: 1\n",
	} {
		_, err := Read(file, []byte(content))
		lists := known.FindAllStringSubmatch(fmt.Sprint(err), -1)
		if len(lists) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		for _, list := range lists {
			for _, key := range strings.Split(list[1], ", ") {
				if !strings.Contains(string(text), "`"+key+"`") {
					t.Errorf("docs/config/topology.md lacks the key %s of %s", key, file)
				}
			}
		}
	}
}
