package controller

import (
	"bytes"
	"testing"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestAmendedArchives sets an admin comment of an ended job: the archive of the replica that applied it has
// it, and that of one that had the job and received a snapshot instead.
func TestAmendedArchives(t *testing.T) {
	ahead, of := backedUp(t)
	behind, its := backedUp(t)
	root := ada
	root.Role = command.RoleOperator
	ahead.Apply(6, int64(ahead.View().Now()), [][]byte{command.Encode(&command.UpdateJobs{
		Actor: root, Jobs: []cluster.JobRef{{ID: 1, Index: cluster.NoIndex}}, Action: command.SetAdminComment, AdminComment: "idle",
	})})
	var image bytes.Buffer
	must(t, ahead.View().Encode(&image))
	must(t, behind.Restore(&image))
	for _, a := range []*archive.Archive{of, its} {
		must(t, a.Sync())
		r, found, err := a.Job(1)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if j, err := command.DecodeJob(r.Data); err != nil || j.AdminComment != "idle" {
			t.Errorf("%q, %v", j.AdminComment, err)
		}
	}
}
