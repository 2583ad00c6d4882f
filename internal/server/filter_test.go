package server_test

import (
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/submitfilter"
	"github.com/greylag/greylag/pkg/cluster"
)

// filterOf returns a submission filter that runs a shell script as the user of the test.
func filterOf(t *testing.T, body string) *submitfilter.Filter {
	t.Helper()
	path := filepath.Join(t.TempDir(), "filter")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	u, err := user.Current()
	must(t, err)
	return submitfilter.New(submitfilter.Config{Program: path, User: u.Uid, Deadline: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
}

// movingFilter moves jobs of the partition "old" to "new", refuses unnamed jobs, and
// accepts a job named "once" only once.
const movingFilter = `
read -r job
case $job in
*'"name":"once"'*) if [ -e "$0.once" ]; then echo '{"refuse": "only once"}'; else : > "$0.once"; fi ;;
*'"name"'*'"partition":"old"'*) echo '{"job": {"partition": "new"}, "message": "old will be removed"}' ;;
*'"name"'*) ;;
*) echo '{"refuse": "give the job a name with --job-name"}' ;;
esac`

// movedNotes is what the user of such a job gets.
var movedNotes = []string{"the submission filter of this site changed the job: partition: old → new", "old will be removed"}

// filteredWorld is a cluster whose only partition is "new", and a job for "old".
func filteredWorld(t *testing.T) (*world, *greylagv1.JobSpec) {
	w := newWorld(t, options{filter: filterOf(t, movingFilter), policy: func(p *cluster.Policy) {
		p.Partitions = []cluster.Partition{{Name: "new", Default: true, MaxTime: time.Hour}}
	}})
	old := job("a")
	old.Partition = "old"
	return w, old
}

func TestFilterChangesSubmissions(t *testing.T) {
	w, old := filteredWorld(t)
	c := w.as(ann)
	request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{old}}
	answer, err := c.Jobs().SubmitJobs(t.Context(), request)
	must(t, err)
	if !slices.Equal(answer.GetWarnings(), movedNotes) {
		t.Errorf("warnings %q, want %q", answer.GetWarnings(), movedNotes)
	}
	shown, err := c.Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: "1"})
	must(t, err)
	if got := shown.GetJobs()[0]; got.GetPartition() != "new" || got.GetUser() != "ann" {
		t.Errorf("stored job: %v", got)
	}
	again, err := c.Jobs().SubmitJobs(t.Context(), request)
	if must(t, err); again.GetJobs()[0].GetId() != 1 {
		t.Errorf("a repetition made job %d", again.GetJobs()[0].GetId())
	}
	audit, err := w.as(root).Cluster().StreamAudit(t.Context(), &greylagv1.StreamAuditRequest{Kind: greylagv1.AuditKind_AUDIT_KIND_SUBMIT})
	must(t, err)
	var texts []string
	for audit.Receive() {
		texts = append(texts, audit.Msg().GetText())
	}
	must(t, audit.Err())
	if want := "1, changed by the submission filter: partition: old → new"; len(texts) != 1 || texts[0] != want {
		t.Errorf("audit %q, want %q", texts, want)
	}
}

func TestFilterRefusesSubmissions(t *testing.T) {
	w, old := filteredWorld(t)
	c := w.as(ann)
	tooLong := job("b")
	tooLong.Partition, tooLong.TimeLimit = "old", durationpb.New(2*time.Hour)
	for _, row := range []struct {
		spec *greylagv1.JobSpec
		code connect.Code
		want string
	}{
		{job(""), connect.CodePermissionDenied, "refused by the submission filter of this site: give the job a name with --job-name"},
		{tooLong, connect.CodeInvalidArgument, "time limit"}, // of the partition that the program chose
	} {
		_, err := c.Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{row.spec}})
		if connect.CodeOf(err) != row.code || !strings.Contains(err.Error(), row.want) {
			t.Errorf("submission: %v, want %v: %s", err, row.code, row.want)
		}
		_, err = c.Jobs().ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: row.spec})
		if connect.CodeOf(err) != row.code || !strings.Contains(err.Error(), row.want) {
			t.Errorf("forecast: %v, want %v: %s", err, row.code, row.want)
		}
	}
	forecast, err := c.Jobs().ForecastJob(t.Context(), &greylagv1.ForecastJobRequest{Job: old})
	if must(t, err); !slices.Equal(forecast.GetWarnings(), movedNotes) {
		t.Errorf("forecast: %v", forecast)
	}
	quote, err := c.Credits().QuoteJobs(t.Context(), &greylagv1.QuoteJobsRequest{Jobs: []*greylagv1.JobSpec{old}})
	if must(t, err); !slices.Equal(quote.GetWarnings(), movedNotes) {
		t.Errorf("warnings of the quote: %q", quote.GetWarnings())
	}
}

func TestFilterThatRefusesARepetition(t *testing.T) {
	w := newWorld(t, options{filter: filterOf(t, movingFilter)})
	c := w.as(ann)
	request := &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{job("once")}}
	for range 2 {
		answer, err := c.Jobs().SubmitJobs(t.Context(), request)
		if must(t, err); answer.GetJobs()[0].GetId() != 1 {
			t.Errorf("job %d, want 1", answer.GetJobs()[0].GetId())
		}
	}
	request.RequestId = client.NewRequestID()
	if _, err := c.Jobs().SubmitJobs(t.Context(), request); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another submission: %v", err)
	}
}

func TestFilterOfAResubmittedJob(t *testing.T) {
	w, old := filteredWorld(t)
	c := w.as(ann)
	w.submit(c, old)
	once := w.submit(c, job("once"))
	_, err := c.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{"1", "2"}}})
	must(t, err)
	request := client.NewRequestID()
	for range 2 {
		if o := requeue(t, c, 1, request); o.GetError() != "" || o.GetId() != 3 {
			t.Errorf("a job that the filter accepts: %v", o)
		}
	}
	_, err = c.Jobs().UpdateJobs(t.Context(), &greylagv1.UpdateJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{strconv.FormatUint(once, 10)}}, Action: greylagv1.JobAction_JOB_ACTION_REQUEUE})
	if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "only once") {
		t.Errorf("a job that the filter refuses: %v", err)
	}
}
