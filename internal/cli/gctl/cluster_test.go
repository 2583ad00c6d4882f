package gctl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestStatusOfAControllerThatHasReadNothing checks that a controller that started alone, and knows
// neither jobs nor entries, reports none.
func TestStatusOfAControllerThatHasReadNothing(t *testing.T) {
	s := &greylagv1.GetStatusResponse{CommitIndex: 0, Digest: "0123"}
	if got := indexOf(s) + jobsOf(s) + stateOf(s); strings.ContainsAny(got, "0123456789") || !strings.Contains(got, "unknown") {
		t.Errorf("without a leader: %q", got)
	}
	if text := asJSON(t, s); !strings.Contains(text, `"applied_index":null`) || !strings.Contains(text, `"active_jobs":null`) || strings.Contains(text, "0123") {
		t.Errorf("without a leader: %s", text)
	}
	s.Leader = "ctl-1"
	if text := asJSON(t, s); !strings.Contains(text, `"applied_index":0`) || !strings.Contains(text, `"active_jobs":0`) {
		t.Errorf("of a new cluster: %s", text)
	}
	if jobsOf(s) != "0 active, 0 finished" || stateOf(s) != "0123" {
		t.Errorf("of a new cluster: %q %q", jobsOf(s), stateOf(s))
	}
}

// TestStatusNamesTheRestore checks that --json reports a restore from a backup as the text does.
func TestStatusNamesTheRestore(t *testing.T) {
	at := time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)
	s := &greylagv1.GetStatusResponse{Leader: "ctl-1", ArchiveMissing: "3 jobs", Restored: &greylagv1.Restored{
		At: timestamppb.New(at), Backup: timestamppb.New(at.Add(-time.Hour)), FirstJob: 7, AuditLeftOut: 5,
	}}
	var got struct {
		Archive  string `json:"archive_missing"`
		Restored struct {
			At, Backup time.Time
			First      uint64 `json:"first_job"`
			Audit      uint64 `json:"audit_left_out"`
		}
	}
	if err := json.Unmarshal([]byte(asJSON(t, s)), &got); err != nil {
		t.Fatal(err)
	}
	if r := got.Restored; !r.At.Equal(at) || !r.Backup.Equal(at.Add(-time.Hour)) || r.First != 7 || r.Audit != 5 || got.Archive != "3 jobs" {
		t.Errorf("%+v", got)
	}
	if s.CaRotation = greylagv1.RotationPhase_ROTATION_PHASE_RENEWING; !strings.Contains(asJSON(t, s), `"ca_rotation":"renewing"`) {
		t.Errorf("a rotation: %s", asJSON(t, s))
	}
	if s.Restored = nil; strings.Contains(asJSON(t, s), "restored") {
		t.Errorf("never restored: %s", asJSON(t, s))
	}
}

// asJSON returns a status as gctl cluster status --json prints it, in one line.
func asJSON(t *testing.T, s *greylagv1.GetStatusResponse) string {
	t.Helper()
	text, err := json.Marshal(statusOf(s))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
