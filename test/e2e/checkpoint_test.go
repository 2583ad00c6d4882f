package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// training is a program whose result depends on each of its steps. It saves its work after each one, and waits at
// the steps 3 and 5 of the attempts 1 and 3.
const training = `n=0; sum=1
[ -z "${GREYLAG_RESUME_FROM:-}" ] || . "$GREYLAG_RESUME_FROM/state"
echo "attempt $GREYLAG_ATTEMPT begins at $n (${GREYLAG_RESUME_STEP:-0})" >>log
while [ $n -lt 6 ]; do
	n=$((n + 1)); sum=$((sum * 7 + n))
	dir=$(gctl checkpoint begin)
	echo "n=$n sum=$sum" >"$dir/state"
	gctl checkpoint commit "$dir" --step $n || exit 2
	case $GREYLAG_ATTEMPT.$n in
	1.3 | 3.5) touch "reached-$n"; while :; do sleep 0.1; done ;;
	esac
done
echo "result $sum" >>log
exit 9`

// TestCheckpoints loses the node of a job, damages its newest checkpoint and requeues it: the job resumes from the
// newest good checkpoint each time, and its result is that of an undisturbed job.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 2*hang)
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: strings.Replace(quickKill(), `"30s"`, `"15s"`, 1)})
	folder := filepath.Join(s.Work, "ckpt")
	id := s.gsubmit(tester, "--checkpoint", folder+"/%j", s.script(training))
	s.until("the first attempt saves step 3", func() (bool, error) { return s.exists("reached-3"), nil })
	job := s.await(ctx, id, "RUNNING")
	dirs, err := filepath.Glob(fmt.Sprintf("%s/%d/a1-*", folder, id))
	if err != nil || len(dirs) != 3 {
		t.Fatalf("checkpoints in %v: %v", dirs, err)
	}
	lost := s.Node(slices.IndexFunc(s.Nodes(), func(n *cluster.Node) bool { return n.Name == job.Nodes[0].Node }))
	s.must(lost.Pause())
	flipBit(t, filepath.Join(dirs[2], "state"))
	s.until("the third attempt saves step 5", func() (bool, error) { return s.exists("reached-5"), nil })
	list := s.ok(tester, "gctl", "checkpoint", "list", fmt.Sprint(id))
	if !strings.Contains(list, "state: 1 of 1 pieces differ") || strings.Count(list, "DAMAGED") != 1 || strings.Count(list, "VERIFIED") != 5 {
		t.Errorf("checkpoints of the job:\n%s", list)
	}
	s.ok(tester, "gctl", "requeue", fmt.Sprint(id))
	job = s.ends(id, "FAILED")
	sum := 1
	for n := range 6 {
		sum = sum*7 + n + 1
	}
	want := fmt.Sprintf("attempt 1 begins at 0 (0)\nattempt 3 begins at 2 (2)\nattempt 4 begins at 5 (5)\nresult %d\n", sum)
	if got := s.output("log"); got != want || job.ExitCode != 9 || job.Attempt != 4 {
		t.Errorf("the job ended with %d in attempt %d and wrote %q, want %q", job.ExitCode, job.Attempt, got, want)
	}
	s.ok(tester, "gctl", "checkpoint", "verify", fmt.Sprint(id), fmt.Sprint(job.Checkpoints[0].Number))
	s.must(lost.Resume())
	s.must(s.AwaitNode(ctx, lost.Name, "IDLE"))
	s.audit(ctx)
}

// TestGangResumesFromAVerifiedCheckpoint damages the part of a checkpoint that the second node verifies: the script,
// which runs on the first node, does not start with it.
func TestGangResumesFromAVerifiedCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: quickKill()})
	id := s.gsubmit(tester, "--nodes=2", "--checkpoint", filepath.Join(s.Work, "ckpt"), s.script(`echo "attempt $GREYLAG_ATTEMPT from $GREYLAG_RESUME_STEP" >>log
[ $GREYLAG_ATTEMPT = 1 ] || exit 9
for step in 1 2; do
	dir=$(gctl checkpoint begin)
	echo $step >"$dir/a"; echo $step >"$dir/b"
	gctl checkpoint commit "$dir" --step $step
done
touch reached; while :; do sleep 0.1; done`))
	s.until("the first attempt saves step 2", func() (bool, error) { return s.exists("reached"), nil })
	flipBit(t, filepath.Join(s.Work, "ckpt", "a1-0002", "b"))
	s.ok(tester, "gctl", "requeue", fmt.Sprint(id))
	job := s.ends(id, "FAILED")
	if got := s.output("log"); got != "attempt 1 from \nattempt 3 from 1\n" || job.ExitCode != 9 || job.RestartCauses.GetDamagedCheckpoint() != 1 {
		t.Errorf("the job ended with %d and wrote %q, restarted for %v", job.ExitCode, got, job.RestartCauses)
	}
	s.audit(limited(t, hang))
}

// flipBit changes one bit of a file, and not its size or time.
func flipBit(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[0] ^= 1
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
}
