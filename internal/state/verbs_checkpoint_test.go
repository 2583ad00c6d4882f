package state

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// ofUsers runs a verb about recurring jobs, secrets, suspect nodes or checkpoints.
func (x *script) ofUsers(verb string, w scriptLine) string {
	switch verb {
	case "cron":
		return x.cron(w)
	case "secret":
		return x.secret(w)
	case "suspects":
		return x.suspects()
	}
	return x.ofCheckpoints(verb, w)
}

// suspects lists the nodes that pending jobs avoid, and the failures of nodes.
func (x *script) suspects() string {
	var lines []string
	v := x.s.View()
	for j := range v.Jobs(0) {
		for _, a := range j.Avoided {
			lines = append(lines, fmt.Sprintf("job %s avoids %s after attempt %d until %s", j.Ref(), a.Node, a.Attempt, a.Until.Sub(1)))
		}
	}
	nodes := slices.Collect(v.Nodes())
	for _, n := range nodes {
		for _, f := range n.Failures {
			lines = append(lines, fmt.Sprintf("%s failed at %s: %s", n.Name, f.At.Sub(1), f.Cause))
		}
		if now := v.Now(); len(n.Failures) > 0 {
			lines = append(lines, fmt.Sprintf("%s score %d of 10 often %v", n.Name, n.Score(now, cluster.RateOf(nodes, now)), n.FailsOften(now, cluster.RateOf(nodes, now))))
		}
	}
	return strings.Join(lines, "\n")
}

// ofCheckpoints commits, sets or lists checkpoints: "checkpoint ada 1/2 /c/a step=7 content=x written",
// "checkpointset ada 1 2 damage detail=x", "checkpoints 1".
func (x *script) ofCheckpoints(verb string, w scriptLine) string {
	switch verb {
	case "checkpoint":
		job, attempt, _ := strings.Cut(w.plain[1], "/")
		k := cluster.Checkpoint{
			Dir: w.plain[2], Step: w.number("step", cluster.NoStep), Files: w.number("files", 2), Bytes: w.number("bytes", 100),
			Digest: sha256.Sum256([]byte(w.keys["content"])), State: cluster.CheckpointVerified,
		}
		if w.has("written") {
			k.State = cluster.CheckpointWritten
		}
		return x.apply(&command.CommitCheckpoint{Request: request16(w), Actor: actor(w.plain[0]), Job: id(job), Attempt: cluster.Attempt(id(attempt)), Checkpoint: k})
	case "checkpointset":
		actions := map[string]command.CheckpointAction{"verify": command.VerifyCheckpoint, "damage": command.DamageCheckpoint, "drop": command.DropCheckpoint}
		return x.apply(&command.SetCheckpoint{
			Request: request16(w), Actor: actor(w.plain[0]), Job: id(w.plain[1]), Number: uint32(id(w.plain[2])),
			Digest: sha256.Sum256([]byte(w.keys["content"])), Action: actions[w.plain[3]], Detail: w.keys["detail"],
		})
	}
	j, known := x.s.View().Job(id(w.plain[0]))
	if !known {
		x.t.Fatalf("no such job: %s", w.plain[0])
	}
	if verb == "warning" {
		a := j.Activity.Value()
		return fmt.Sprintf("warning %q since %s, sent %s; idle %s", j.Warning(), time.Duration(a.WarnsFrom), time.Duration(a.NoticedAt), accounting.IdleText(&a.Idle, x.now))
	}
	var out strings.Builder
	for _, k := range j.Checkpoints {
		fmt.Fprintf(&out, "%d: attempt %d step %d %s %s", k.Number, k.Attempt, k.Step, k.Dir, k.State)
		if k.Verified != 0 {
			out.WriteString(" verified again")
		}
		if k.Detail != "" {
			out.WriteString(" (" + k.Detail + ")")
		}
		if k.Number == j.Resume {
			out.WriteString(" resumed")
		}
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "failures %d retries %d", j.Failures, j.Retries)
	if j.WriteTime > 0 {
		fmt.Fprintf(&out, " written within %s", j.WriteTime)
	}
	return out.String()
}

// retryOf reads retries=2 retryon=exit:75,oom.
func (x *script) retryOf(w scriptLine) cluster.Retry {
	if _, given := w.keys["retries"]; !given {
		return cluster.Retry{Limit: cluster.DefaultRetry}
	}
	r, err := cluster.ParseRetryCauses(w.keys["retryon"])
	if err != nil {
		x.t.Fatal(err)
	}
	r.Limit = int32(w.number("retries", 0))
	return r
}
