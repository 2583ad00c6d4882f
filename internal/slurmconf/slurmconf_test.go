package slurmconf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/config/strict"
)

// write writes files into a new folder and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// show writes lines as "number key=value|...".
func show(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s:%d", filepath.Base(l.File), l.Number)
		for _, p := range l.Pairs {
			fmt.Fprintf(&b, " %s=%s", p.Key, p.Value)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestRead(t *testing.T) {
	dir := write(t, map[string]string{
		"slurm.conf": "# comment\nClusterName = one # two\n\nINCLUDE %c.conf\nNodeName=c[1-2] \\\n  Feature=\"a b\" CPUs=4\n" +
			"Include /nowhere/more.conf\r\nA= B=x\\#y  C=k=v,l=m\nD+=1",
		"one.conf": "PartitionName=p Nodes=c1", "more.conf": "X=1\n",
	})
	lines, err := Read(filepath.Join(dir, "slurm.conf"))
	const want = "slurm.conf:2 ClusterName=one\none.conf:1 PartitionName=p Nodes=c1\nslurm.conf:5 NodeName=c[1-2] Feature=a b CPUs=4\n" +
		"more.conf:1 X=1\nslurm.conf:8 A= B=x#y C=k=v,l=m\nslurm.conf:9 D=1\n"
	if got := show(lines); err != nil || got != want {
		t.Errorf("%v, got\n%swant\n%s", err, got, want)
	}
	if v, set := lines[0].Value("clustername"); v != "one" || !set {
		t.Error(v, set)
	}
}

// TestReadReportsAll: all malformed lines are reported at once, and loops and missing files end.
func TestReadReportsAll(t *testing.T) {
	dir := write(t, map[string]string{
		"slurm.conf": "Include a.conf\nno pair\n=x\nK=\"open\nInclude\nInclude gone.conf\n", "a.conf": "Include slurm.conf\nInclude a.conf\n",
	})
	_, err := Read(filepath.Join(dir, "slurm.conf"))
	var faults strict.Faults
	if !errors.As(err, &faults) || len(faults) != 7 {
		t.Fatalf("%v", err)
	}
	for i, want := range []string{
		"a.conf:1: include loop", "a.conf:2: include loop", `slurm.conf:2: malformed line: "no" is not KEY=VALUE`, "slurm.conf:3: malformed", "slurm.conf:4: malformed line: no closing quote",
		"slurm.conf:5: Include names no file", "slurm.conf:6: no file ",
	} {
		if got := strings.TrimPrefix(faults[i].String(), dir+"/"); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestReadIsBounded: files that include each other exponentially, and files of another kind, end.
func TestReadIsBounded(t *testing.T) {
	files := map[string]string{"noise.conf": strings.Repeat("noise\n", 100_000)}
	for i := range 14 {
		files[fmt.Sprintf("f%d.conf", i)] = strings.Repeat(fmt.Sprintf("Include f%d.conf\n", i+1), 10)
	}
	files["f14.conf"] = "A=1\n"
	dir := write(t, files)
	for _, name := range []string{"f0.conf", "noise.conf"} {
		var faults strict.Faults
		if _, err := Read(filepath.Join(dir, name)); !errors.As(err, &faults) || len(faults) > maxFaults+1 {
			t.Errorf("%s: %d faults", name, len(faults))
		}
	}
	if err := os.Truncate(filepath.Join(dir, "noise.conf"), MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "noise.conf")); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Error(err)
	}
}

func TestReadDump(t *testing.T) {
	dir := write(t, map[string]string{
		"good": "# heading\nCluster - 'c':Fairshare=1\nAccount - 'a':Description='Bob's: lab':GrpTRES=cpu=1,gres/gpu=2:QOS='x,y'\nUser - 'u':GrpTRES=cpu=1,gres/gpu:h100=8,gres/gpu:a100=4:MaxJobs=3\n",
		"bad":  "Account\nUser - 'x\nUser - 'x':noise\n", "table": "Name|Priority|\nx|1|\ny|2\n|||\n",
	})
	all, err := ReadDump(filepath.Join(dir, "good"))
	if err != nil || len(all) != 3 || all[1].Name != "a" || show([]Line{all[1].Line, all[2].Line}) != "good:3 Description=Bob's: lab GrpTRES=cpu=1,gres/gpu=2 QOS=x,y\n"+
		"good:4 GrpTRES=cpu=1,gres/gpu:h100=8,gres/gpu:a100=4 MaxJobs=3\n" {
		t.Errorf("%v %v", all, err)
	}
	var faults strict.Faults
	if _, err = ReadDump(filepath.Join(dir, "bad")); !errors.As(err, &faults) || len(faults) != 3 {
		t.Error(err)
	}
	if rows, err := ReadTable(filepath.Join(dir, "table")); err == nil {
		t.Errorf("a row with too many columns: %v", rows)
	}
}

func TestFind(t *testing.T) {
	dir := write(t, map[string]string{
		"slurm.conf": "", "gres.conf": "", "topology.conf": "", "topology.yaml": "", "assoc.cfg": "# x\nCluster - 'c'\n", "qos": "Name|Priority|Preempt\n", "cgroup.conf": "",
	})
	set, err := Find([]string{dir})
	if err != nil || filepath.Base(set.Dump) != "assoc.cfg" || filepath.Base(set.QOSTable) != "qos" || filepath.Base(set.Topology) != "topology.yaml" || len(set.Others) != 2 {
		t.Errorf("%+v %v", set, err)
	}
	if _, err := Find([]string{dir, filepath.Join(dir, "slurm.conf")}); err == nil {
		t.Error("slurm.conf twice")
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil { // opening it would block
		t.Fatal(err)
	}
	if _, err := Find([]string{dir}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"gone", "pipe", "cgroup"} {
		if _, err := Find([]string{filepath.Join(dir, name)}); err == nil {
			t.Error(name)
		}
	}
	if _, err := Read(filepath.Join(dir, "pipe")); err == nil {
		t.Error("a pipe is read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("NodeName=c[1-2] Feature=\"a b\" CPUs = 4")
	f.Add("User - 'x':Description='it's':QOS='a,b'")
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := ParsePairs(text)
		if err == nil {
			var b strings.Builder
			for _, p := range pairs {
				if p.Key == "" || strings.ContainsAny(p.Value, `"`) {
					return
				}
				fmt.Fprintf(&b, "%s=\"%s\" ", p.Key, p.Value)
			}
			again, err := ParsePairs(b.String())
			if err != nil || len(again) != len(pairs) {
				t.Fatalf("%q gives %v, which gives %v %v", text, pairs, again, err)
			}
		}
		if _, err := ParseEntity(text); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
	})
}
