package checkpoints

import (
	"context"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const listLong = `Lists the recorded checkpoints of a job, oldest first. The next attempt resumes
from the last one that is not DAMAGED. Of a WRITTEN checkpoint only the sizes of
the files are recorded; of a VERIFIED one, also their hashes.`

func (t commands) list() *cobra.Command {
	c := &cobra.Command{
		Use: "list [JOB]", Short: "List the checkpoints of a job", Long: listLong, Args: cobra.MaximumNArgs(1), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			job, err := t.job(ctx, c, args)
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(struct {
					Job         string              `json:"job"`
					Resume      uint32              `json:"resume,omitempty"`
					Checkpoints []ui.CheckpointJSON `json:"checkpoints"`
				}{job.Ref, job.Resume, append([]ui.CheckpointJSON{}, ui.Checkpoints(job)...)})
			}
			if len(job.Checkpoints) == 0 {
				t.Note("job %s has no checkpoints", job.Ref)
				return nil
			}
			return t.WriteTable(t.table(job))
		}),
	}
	t.AddStaleFlag(c)
	return c
}

func (t commands) table(job *greylagv1.Job) ui.Table {
	table := ui.Table{Head: []string{"NUMBER", "ATTEMPT", "STEP", "STATE", "COMMITTED", "SIZE", "DIRECTORY"}, Right: "rrrllrl", Prose: true}
	for _, k := range job.Checkpoints {
		step := "-"
		if k.Step != nil {
			step = strconv.FormatInt(*k.Step, 10)
		}
		where := k.Dir
		if k.Detail != "" {
			where += ": " + k.Detail
		}
		if k.Number == job.Resume {
			where += " (resumed from)"
		}
		table.Rows = append(table.Rows, []string{
			strconv.FormatUint(uint64(k.Number), 10), strconv.FormatUint(uint64(k.Attempt), 10), step, wire.Word(k.State),
			t.FormatTime(k.Committed), ui.SizeText(cluster.Bytes(k.Bytes)), where,
		})
	}
	return table
}

// localFileSystems are the types of file systems that only one host sees (statfs(2)).
var localFileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
}

// warnLocal warns if a directory is private to this attempt or, at the first checkpoint of a job, on a file system that
// other nodes do not see.
func (t commands) warnLocal(dir string, first bool) {
	root, tmp := mountOf("/"), ""
	for _, temporary := range []string{"/tmp", "/var/tmp"} {
		if id := mountOf(temporary); id != 0 && id != root && id == mountOf(dir) && strings.HasPrefix(dir, temporary+"/") {
			tmp = temporary
		}
	}
	var stat syscall.Statfs_t
	switch {
	case tmp != "" && t.Variable(config.SocketEnv) != "":
		t.Warn(ui.Printable(dir) + " is in the private " + tmp + " of this attempt: no other attempt can see it, on any node")
		return
	case !first || syscall.Statfs(dir, &stat) != nil:
		return
	}
	if name := localFileSystems[int64(stat.Type)]; name != "" {
		t.Warn(ui.Printable(dir) + " is on a local file system (" + name + "): an attempt on another node cannot resume from it")
	}
}

// mountOf returns the ID of the mount of a directory; 0 if the kernel does not report it.
func mountOf(dir string) uint64 {
	var stat unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &stat) != nil || stat.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return stat.Mnt_id
}
