package taskdb

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("TASKDB_WRITER"); path != "" {
		write(path)
	}
	os.Exit(m.Run())
}

// write records task after task, printing which is done, until it is killed.
func write(path string) {
	db, _, err := Open(path)
	for i := uint64(1); err == nil; i++ {
		if err = db.Write(Change{Put: []*Task{task(i)}, Floor: i}); err == nil {
			fmt.Println(i)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func task(job uint64) *Task {
	return &Task{
		ID: reconcile.ID{Job: cluster.JobID(job), Attempt: 2}, Phase: reconcile.Ended, Wanted: []byte{0, 255, 1},
		CPUs: []int{3, 4}, Signalled: 9, KillAt: 77, Doomed: "gone", Blame: "XID 13",
		End: cluster.Task{Cause: cluster.Exited, Exit: cluster.Exit{Code: 7}, Message: "m", Started: 5, Ended: 6, Memory: 1 << 40},
	}
}

func mustOpen(t *testing.T, path string) (*DB, bool) {
	t.Helper()
	db, fresh, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, fresh
}

func TestRecordsOutliveTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "tasks.db")
	db, fresh := mustOpen(t, path)
	if !fresh {
		t.Error("a new file is not called fresh")
	}
	identity := Identity{Instance: "i", Cluster: "c", Epoch: 12}
	for _, err := range []error{
		db.SetIdentity(identity),
		db.Write(Change{Put: []*Task{task(1), task(2), task(256)}, Floor: 40}),
		db.Write(Change{Forget: []reconcile.ID{task(2).ID}}),
		db.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	db, fresh = mustOpen(t, path)
	tasks, err := db.Tasks()
	if fresh || err != nil || !reflect.DeepEqual(tasks, []*Task{task(1), task(256)}) {
		t.Errorf("fresh %v, tasks %+v, %v", fresh, tasks, err)
	}
	if got, known, err := db.Identity(); got != identity || !known || err != nil {
		t.Errorf("identity %+v %v %v", got, known, err)
	}
	if floor, err := db.Floor(); floor != 40 || err != nil {
		t.Errorf("floor %d, %v", floor, err)
	}
}

func TestOneDaemonAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	mustOpen(t, path)
	if _, _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("second open: %v", err)
	}
}

func TestUnreadableFileIsPutAside(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "tasks.db")
	db, _ := mustOpen(t, whole)
	for job := range uint64(300) {
		if err := db.Write(Change{Put: []*Task{task(job + 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for percent := 5; percent < 100; percent += 5 {
		path := filepath.Join(t.TempDir(), "tasks.db")
		if err := os.WriteFile(path, data[:len(data)*percent/100], 0o600); err != nil {
			t.Fatal(err)
		}
		db, fresh, err := Open(path)
		if err != nil {
			t.Fatalf("cut to %d %%: %v", percent, err)
		}
		if tasks, err := db.Tasks(); err != nil || fresh != (len(tasks) == 0) {
			t.Errorf("cut to %d %%: fresh %v, %d tasks, %v", percent, fresh, len(tasks), err)
		}
		_ = db.Close()
	}
	for name, damaged := range map[string][]byte{
		"empty":   {},
		"garbage": bytes.Repeat([]byte("x"), 70000),
		"cut":     data[:len(data)/3],
		"pages":   append(bytes.Clone(data[:8192]), bytes.Repeat([]byte{0xff}, len(data)-8192)...),
		"record":  bytes.ReplaceAll(data, []byte(`"Phase":3`), []byte(`"Phase":9`)),
	} {
		path := filepath.Join(t.TempDir(), "tasks.db")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		db, fresh, err := Open(path)
		if err != nil || name != "empty" && !fresh {
			t.Errorf("%s: fresh %v, %v", name, fresh, err)
			continue
		}
		if tasks, err := db.Tasks(); len(tasks) != 0 || err != nil {
			t.Errorf("%s: %d tasks, %v", name, len(tasks), err)
		}
		if _, err := os.Stat(path + ".broken"); name != "empty" && err != nil {
			t.Errorf("%s: not put aside: %v", name, err)
		}
		if err := db.Write(Change{Put: []*Task{task(1)}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = db.Close()
	}
}

// TestKilledWhileWriting checks that what was written before SIGKILL is whole.
func TestKilledWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	for range 3 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "TASKDB_WRITER="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		last, lines := uint64(0), bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if last = max(last, n); last == 200 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := child.Wait(); err == nil || last < 200 {
			t.Fatalf("the writer ended by itself after %d: %v", last, err)
		}
		db, fresh := mustOpen(t, path)
		tasks, err := db.Tasks()
		floor, _ := db.Floor()
		if fresh || err != nil || uint64(len(tasks)) < last || floor < last {
			t.Fatalf("fresh %v, %d tasks, floor %d of at least %d: %v", fresh, len(tasks), floor, last, err)
		}
		_ = db.Close()
	}
}

func FuzzDecodeTask(f *testing.F) {
	good, err := EncodeTask(task(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{codec.FormByte(form)})
	f.Fuzz(func(t *testing.T, data []byte) {
		task, err := DecodeTask(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, codec.ErrEarlier) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		again, err := EncodeTask(task)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeTask(again); err != nil || !reflect.DeepEqual(back, task) {
			t.Fatalf("%+v became %+v, %v", task, back, err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	db, _, err := Open(filepath.Join(b.TempDir(), "tasks.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	one := task(1)
	one.Wanted = make([]byte, 1500)
	for b.Loop() {
		if err := db.Write(Change{Put: []*Task{one}, Floor: 7}); err != nil {
			b.Fatal(err)
		}
	}
}
