package archive

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const childDir = "GREYLAG_ARCHIVE_TEST_DIR"

// TestMain is also the child that TestKilledWhileWriting kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		appendForEver(dir)
	}
	os.Exit(m.Run())
}

// appendForEver continues at the archive's end and prints each number that Sync has made durable.
func appendForEver(dir string) {
	a, err := Open(dir, Options{Pause: time.Millisecond})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	_, seq := a.Watermark()
	for {
		for range 50 {
			seq++
			if err := a.Append(seq, records(seq, seq), []Blob{blob(fmt.Sprint("script ", seq))}); err != nil {
				fmt.Println("error:", err)
				os.Exit(1)
			}
		}
		if err := a.Sync(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(seq)
	}
}

// TestKilledWhileWriting kills a process repeatedly while it appends: what it reported as durable
// is whole, and nothing before it is missing.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		lines := bufio.NewScanner(out)
		durable := uint64(0)
		for range 3 + round {
			if !lines.Scan() || strings.HasPrefix(lines.Text(), "error") {
				child.Process.Kill()
				child.Wait()
				t.Fatalf("child: %q %v", lines.Text(), lines.Err())
			}
			durable, err = strconv.ParseUint(lines.Text(), 10, 64)
			must(t, err)
		}
		must(t, child.Process.Kill())
		child.Wait() // it was killed
		a := open(t, dir)
		got := between(t, a, 0, 1<<20)
		_, seq := a.Watermark()
		if uint64(len(got)) != seq || seq < durable || !slices.IsSorted(got) {
			t.Fatalf("round %d: %d records, watermark %d, durable %d", round, len(got), seq, durable)
		}
		for n := range seq {
			if _, ok, err := a.Blob(blob(fmt.Sprint("script ", n+1)).Digest); !ok || err != nil {
				t.Fatalf("round %d: script %d: %v %v", round, n+1, ok, err)
			}
		}
		agree(t, a)
		must(t, a.Close())
	}
}
