package server_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

var reportDay = time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC) // never written

// endedJob returns a finished job that follows from its number alone.
func endedJob(seq uint64) archive.Record {
	r := rand.New(rand.NewPCG(seq, 11))
	ended := cluster.InstantOf(reportDay.Add(time.Duration(seq) * 97 * time.Second))
	ran, user := time.Duration(r.IntN(400_000_000))*time.Millisecond, []cluster.Identity{ann, bob}[r.IntN(2)]
	tres := []cluster.Amount{{Resource: "cpu", Count: 8}, {Resource: "gpu", Count: 4}, {Resource: "gpu:h100", Count: 4}, {Resource: "node", Count: 1}}
	j := &cluster.Job{
		ID: cluster.JobID(seq), Index: cluster.NoIndex, State: cluster.Completed + cluster.JobState(r.IntN(8)), Attempt: 1, Partition: "main", TRES: tres,
		Submitted: ended.Add(-ran - time.Hour), Started: ended.Add(-ran), Ended: ended, Tasks: cluster.NewTasks(cluster.Task{Node: "n1", CPUTime: ran}),
		Spec: &cluster.JobSpec{Name: "x", Owner: user, Account: "physics", WCKey: []string{"", "llm"}[r.IntN(2)], Partition: "main", QOS: "standard", Request: cluster.Request{Nodes: 1, GPUs: 4}},
	}
	if r.IntN(5) == 0 {
		j.Attempts = []cluster.AttemptRecord{{Attempt: 1, Partition: "main", Started: j.Started.Add(-time.Hour), Ended: j.Started.Add(-time.Minute), Outcome: cluster.NodeFailed, Detail: "node n1: silent", TRES: tres}}
		j.Attempt = 2
	}
	return archive.Record{Seq: seq, ID: j.ID, User: user.User, Account: "physics", State: j.State, Submitted: j.Submitted, Ended: ended, Data: command.EncodeJob(j)}
}

// feed gives an archive the same history in batches of its own.
func feed(t *testing.T, w *world, batch func() int) {
	t.Helper()
	store := w.all[0].store
	for seq := uint64(1); seq <= 2000; {
		var list []archive.Record
		for range batch() {
			if seq <= 2000 {
				list = append(list, endedJob(seq))
				seq++
			}
		}
		must(t, store.Append(seq, list, nil))
	}
	ledger := accounting.New()
	at := func(h int) accounting.Stamp {
		return accounting.Stamp{At: cluster.InstantOf(reportDay.Add(time.Duration(h) * time.Hour)), Key: fmt.Sprint("k", h)}
	}
	_, err := ledger.Grant(at(1), accounting.Grant{Owner: accounting.PayerPath{"physics"}, Class: accounting.Purchase, Amount: 1000 * accounting.One})
	must(t, err)
	claim := accounting.Claim{ID: accounting.LienID{Job: 7, Attempt: 1}, Chain: accounting.PayerPath{"physics/ann", "physics"}, Amount: 50 * accounting.One, Rates: []accounting.Rate{{GPUType: "h100", Price: 2 * accounting.One}}}
	_, err = ledger.CreateLien(at(2), claim)
	must(t, err)
	_, err = ledger.StartBilling(at(3), claim.ID, accounting.GPUs{Type: "h100", Count: 4})
	must(t, err)
	_, err = ledger.Settle(at(6), accounting.Settlement{Lien: claim.ID, Total: accounting.Millis(4, 3*time.Hour)})
	must(t, err)
	for _, e := range ledger.Drain() {
		must(t, store.AppendRows(3000, archive.CreditJournal, []archive.Row{{Seq: e.Seq, Data: e.AppendRow(nil)}}))
	}
}

// periods returns a request for a period, or for each of several.
func periods(bounds ...time.Time) *greylagv1.Periods {
	p := &greylagv1.Periods{Grace: durationpb.New(time.Hour)}
	for _, b := range bounds {
		p.Bounds = append(p.Bounds, timestamppb.New(b))
	}
	return p
}

// usageOf returns all reports of the rows that a caller gets, as CSV.
func usageOf(t *testing.T, w *world, who cluster.Identity, p *greylagv1.Periods) (string, *greylagv1.ReportHead) {
	t.Helper()
	stream, err := w.as(who).Reports().StreamUsage(context.Background(), &greylagv1.StreamUsageRequest{Periods: p})
	must(t, err)
	defer stream.Close()
	all := make([][]report.Row, len(p.Bounds)-1)
	var head *greylagv1.ReportHead
	for stream.Receive() {
		if stream.Msg().Head != nil {
			head = stream.Msg().Head
		}
		for _, r := range stream.Msg().Rows {
			i, k, tally := wire.ReadUsageRow(r)
			all[i] = append(all[i], report.Row{Key: k, Tally: *tally})
		}
	}
	must(t, stream.Err())
	var b bytes.Buffer
	for i, rows := range all {
		for _, name := range report.Reports() {
			table, _ := report.Make(name, rows)
			fmt.Fprintf(&b, "%d %s\n%s", i, name, table.CSV())
		}
	}
	return b.String(), head
}

// TestReportsOfTwoControllersAreEqual checks that two archives with the same history in different
// batches give the same bytes, in any time zone, and also on days of 23 hours.
func TestReportsOfTwoControllersAreEqual(t *testing.T) {
	type quietly struct{ testing.TB } // newWorld makes a test parallel, which can be done once
	one, two := newWorld(t, options{}), newWorld(quietly{t}, options{})
	feed(t, one, func() int { return 2000 })
	feed(t, two, func() int { return 1 + rand.IntN(90) })
	for _, name := range []string{"UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"} {
		zone, err := time.LoadLocation(name)
		must(t, err)
		day, err := report.PeriodOf("day", time.Date(2026, 3, 29, 12, 0, 0, 0, zone))
		must(t, err)
		if hours := day.To.Sub(day.From).Hours(); (hours == 23) != (name == "Europe/Berlin") {
			t.Errorf("%s has %v hours on the day", name, hours)
		}
		p := periods(day.DaysBefore(3)...)
		a, head := usageOf(t, one, olga, p)
		b, _ := usageOf(t, two, olga, p)
		if a != b || len(a) < 1000 {
			t.Errorf("%s: one says\n%s\nthe other\n%s", name, a, b)
		}
		if !head.Ready || head.Open != "" || head.WatermarkSeq == 0 || len(head.HeadHash) != 32 || head.Unreadable != 0 {
			t.Errorf("%s: %v", name, head)
		}
	}
}

// TestReportUsageAddsUp checks that the sums of a whole history are those of its jobs.
func TestReportUsageAddsUp(t *testing.T) {
	w := newWorld(t, options{})
	feed(t, w, func() int { return 300 })
	stream, err := w.as(olga).Reports().StreamUsage(context.Background(), &greylagv1.StreamUsageRequest{Periods: periods(reportDay.AddDate(0, 0, -30), reportDay.AddDate(0, 0, 30))})
	must(t, err)
	defer stream.Close()
	var gpu, cpu, jobs, attempts, fault int64
	for stream.Receive() {
		for _, r := range stream.Msg().Rows {
			gpu, cpu, attempts, fault = gpu+r.Gpu, cpu+r.Cpu, attempts+r.Attempts, fault+r.Fault
			for _, n := range r.Ended {
				jobs += n
			}
		}
	}
	must(t, stream.Err())
	var millis, earlier, more, failed int64
	for seq := uint64(1); seq <= 2000; seq++ {
		j, err := command.DecodeJob(endedJob(seq).Data)
		must(t, err)
		ran := j.Ended.Sub(j.Started).Milliseconds()
		if millis += ran; j.State == cluster.NodeFailed {
			failed += 4 * ran
		}
		for range j.Attempts {
			earlier += (59 * time.Minute).Milliseconds()
			more++
		}
	}
	if all := millis + earlier; gpu != 4*all || cpu != 8*all || jobs != 2000 || attempts != 2000+more || fault != failed+4*earlier {
		t.Errorf("gpu %d cpu %d jobs %d attempts %d fault %d, want %d %d 2000 %d %d", gpu, cpu, jobs, attempts, fault, 4*all, 8*all, 2000+more, failed+4*earlier)
	}
}

// TestReportRights checks that users get only their own rows where jobs are private.
func TestReportRights(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = true }})
	feed(t, w, func() int { return 500 })
	p := periods(reportDay, reportDay.AddDate(0, 0, 2))
	if all, _ := usageOf(t, w, olga, p); !bytes.Contains([]byte(all), []byte("physics,bob")) {
		t.Error("an operator does not see all")
	}
	if own, _ := usageOf(t, w, ann, p); !bytes.Contains([]byte(own), []byte("physics,ann")) || bytes.Contains([]byte(own), []byte("bob")) {
		t.Error("ann sees", own)
	}
	for what, bad := range map[string]*greylagv1.Periods{
		"no bounds": periods(), "bounds that descend": periods(reportDay, reportDay.Add(-time.Hour)), "a bound that is no whole second": periods(reportDay, reportDay.Add(time.Millisecond)),
	} {
		stream, err := w.as(olga).Reports().StreamUsage(context.Background(), &greylagv1.StreamUsageRequest{Periods: bad})
		if err == nil {
			stream.Receive()
			err = stream.Err()
			stream.Close()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, head := usageOf(t, w, olga, periods(reportDay, time.Now().Truncate(time.Hour).Add(2*time.Hour))); head.Ready || head.Open == "" {
		t.Error("a period that is not over is ready:", head)
	}
}

// TestReportCredits checks that credits are reported by payer, kind and GPU type.
func TestReportCredits(t *testing.T) {
	w := newWorld(t, options{})
	feed(t, w, func() int { return 500 })
	stream, err := w.as(olga).Reports().StreamCredits(context.Background(), &greylagv1.StreamCreditsRequest{Periods: periods(reportDay, reportDay.AddDate(0, 0, 1))})
	must(t, err)
	defer stream.Close()
	got := ""
	for stream.Receive() {
		for _, r := range stream.Msg().Rows {
			got += fmt.Sprintf("%s %s %s %d %d\n", r.Payer, wire.Word(r.Kind), r.GpuType, r.Bucket, r.Amount)
		}
	}
	must(t, stream.Err())
	const want = "physics grant  1 1000000000\nphysics/ann lien  0 50000000\nphysics/ann charge h100 0 24000000\nphysics/ann release  0 26000000\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestReportEnded checks that the jobs of a period are listed in the order in which they ended.
func TestReportEnded(t *testing.T) {
	w := newWorld(t, options{})
	feed(t, w, func() int { return 500 })
	stream, err := w.as(olga).Reports().StreamEndedJobs(context.Background(), &greylagv1.StreamEndedJobsRequest{Periods: periods(reportDay, reportDay.AddDate(0, 0, 1))})
	must(t, err)
	defer stream.Close()
	n := uint64(0)
	for stream.Receive() {
		for _, j := range stream.Msg().Jobs {
			if n++; j.Job.Id != n || len(j.Tres) != 4 {
				t.Fatalf("job %d is %v", n, j)
			}
		}
	}
	must(t, stream.Err())
	if want := uint64(24*3600-1) / 97; n != want {
		t.Errorf("%d jobs ended, want %d", n, want)
	}
}
