package command

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

func roundTrip(t *testing.T, c Command) []byte {
	t.Helper()
	data := Encode(c)
	back, err := Decode(data)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	if !reflect.DeepEqual(c, back) {
		t.Fatalf("%T came back as\n%+v\nnot\n%+v", c, back, c)
	}
	if !bytes.Equal(Encode(back), data) {
		t.Fatalf("%T: two encodings of one value", c)
	}
	return data
}

func TestEveryFieldSurvives(t *testing.T) {
	for _, c := range every(1, true) {
		roundTrip(t, c)
	}
	for seed := range uint64(300) {
		for _, c := range every(seed, false) {
			roundTrip(t, c)
		}
	}
	roundTrip(t, &ReportTasks{GPUs: []cluster.GPU{}})
}

func TestJobsAndResultsSurvive(t *testing.T) {
	for seed := range uint64(300) {
		j := filled[cluster.Job](seed, seed == 0)
		j.Spec = filled[cluster.JobSpec](seed, seed == 0)
		if back, err := DecodeJob(EncodeJob(j)); err != nil || !reflect.DeepEqual(j, back) {
			t.Fatalf("seed %d: %v\n%+v\nnot\n%+v", seed, err, back, j)
		}
		submitted, outcomes := filled[Submitted](seed, false), filled[Outcomes](seed, false)
		submitted.Again, outcomes.Again = false, false
		for _, r := range []Result{filled[Refusal](seed, false), filled[Done](seed, false), submitted, outcomes, filled[Named](seed, false)} {
			if back, err := DecodeResult(EncodeResult(r)); err != nil || !reflect.DeepEqual(r, back) {
				t.Fatalf("seed %d: %v\n%+v\nnot\n%+v", seed, err, back, r)
			}
		}
	}
	if EncodeResult(nil) != nil || EncodeResult(&Committed{}) != nil {
		t.Error("a result that is never remembered was encoded")
	}
}

const golden = "testdata/commands-v1.golden"

// TestGolden checks that what version 1 wrote loads permanently, with the values it had.
// Each line is the command's type, its bytes in hexadecimal, its value as JSON.
func TestGolden(t *testing.T) {
	data, err := os.ReadFile(golden)
	if err != nil && !scenario.Rewrite() {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		word := strings.SplitN(strings.TrimSpace(line), " ", 3)
		raw, err := hex.DecodeString(word[1])
		if err != nil {
			t.Fatal(err)
		}
		c, err := Decode(raw)
		if err != nil {
			t.Errorf("%s: %v", word[0], err)
			continue
		}
		present[word[0]] = true
		var want, got any
		value, _ := json.Marshal(c)
		if errors.Join(json.Unmarshal([]byte(word[2]), &want), json.Unmarshal(value, &got)) != nil {
			t.Fatalf("%s: bad JSON", word[0])
		}
		if why := missing(want, got); why != "" {
			t.Errorf("%s: %s", word[0], why)
		}
	}
	for _, c := range every(1, true) {
		name := fmt.Sprintf("%T", c)
		if present[name] {
			continue
		}
		if !scenario.Rewrite() {
			t.Errorf("%s is not in %s; run with -rewrite", name, golden)
		}
		value, _ := json.Marshal(c)
		data = fmt.Appendf(data, "%s %x %s\n", name, Encode(c), value)
	}
	if scenario.Rewrite() {
		if err := os.WriteFile(golden, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// missing returns what of want is not in got; got may have more fields.
func missing(want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for k, v := range w {
			if why := missing(v, g[k]); why != "" {
				return k + "." + why
			}
		}
		return ""
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return fmt.Sprintf("%d elements, want %d", len(g), len(w))
		}
		for i := range w {
			if why := missing(w[i], g[i]); why != "" {
				return fmt.Sprintf("%d.%s", i, why)
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf(" is %v, want %v", got, want)
	}
	return ""
}

// TestDamage flips, cuts and stretches encoded commands. Some damage gives
// another command; none may panic.
func TestDamage(t *testing.T) {
	for _, c := range every(1, true) {
		data := Encode(c)
		for i := range data {
			for _, x := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(data)
				bad[i] ^= x
				_, _ = Decode(bad)
			}
			if _, err := Decode(data[:i]); err == nil {
				t.Fatalf("%T cut to %d of %d bytes was accepted", c, i, len(data))
			}
		}
		if _, err := Decode(append(bytes.Clone(data), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%T with a byte too many: %v", c, err)
		}
	}
	for _, data := range []string{"\x42\x02\x00", "\x41\x7f\x00"} {
		if _, err := Decode([]byte(data)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%x: %v", data, err)
		}
	}
}

// allocated is what decode allocates.
func allocated(decode func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decode()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzDecode(f *testing.F) {
	for _, c := range every(1, true) {
		f.Add(Encode(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Command
		var err error
		if n := allocated(func() { c, err = Decode(data) }); n > uint64(100*len(data)+64<<10) {
			t.Fatalf("%d bytes made the decoder allocate %d", len(data), n)
		}
		if err == nil {
			roundTrip(t, c)
		}
		_, _ = DecodeJob(data)
		_, _ = DecodeResult(data)
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		for _, c := range every(seed, false) {
			roundTrip(t, c)
		}
	})
}

// BenchmarkSubmit is 100 jobs in one command.
func BenchmarkSubmit(b *testing.B) {
	submit := &SubmitJobs{}
	for range 100 {
		submit.Jobs = append(submit.Jobs, Submission{Spec: cluster.JobSpec{
			Name: "train", Owner: cluster.Identity{User: "ada", UID: 1000, GID: 1000}, Account: "physics",
			Partition: "main", QOS: "standard", WorkDir: "/home/ada/run", Output: "slurm-%j.out",
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, TasksPerNode: 1, CPUsPerTask: 4},
		}})
	}
	data := Encode(submit)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Encode(submit)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestEarlierVersions: what a development version wrote before form 1 is refused as such.
func TestEarlierVersions(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"command": func(b []byte) error { _, err := Decode(b); return err },
		"result":  func(b []byte) error { _, err := DecodeResult(b); return err },
		"job":     func(b []byte) error { _, err := DecodeJob(b); return err },
		"audit":   func(b []byte) error { _, err := DecodeAudit(append(make([]byte, 64), b...)); return err },
	} {
		// A tick, an answer, a job and an audit entry began alike.
		if err := decode([]byte{1, 10, 1, 6}); !errors.Is(err, codec.ErrEarlier) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
