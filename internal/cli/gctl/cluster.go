package gctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/doctor"
	"github.com/greylag/greylag/internal/cli/gctl/setup"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

func (t commands) clusterCommand() *cobra.Command {
	all := &cobra.Command{
		Use: "cluster", Short: "Manage the controllers and their membership", GroupID: tool.GroupCluster, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	all.AddCommand(
		t.statusCommand(),
		&cobra.Command{
			Use: "add ID ADDRESS", Short: "Add a joined controller to the cluster", Args: cobra.ExactArgs(2),
			RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
				_, err := c.Cluster().AddMember(ctx, &greylagv1.AddMemberRequest{Id: args[0], Address: args[1]})
				return t.Printed(err, "added %s", args[0])
			}),
		},
		&cobra.Command{
			Use: "remove ID", Short: "Remove a controller from the cluster", Args: cobra.ExactArgs(1),
			RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
				_, err := c.Cluster().RemoveMember(ctx, &greylagv1.RemoveMemberRequest{Id: args[0]})
				return t.Printed(err, "removed %s", args[0])
			}),
		},
		&cobra.Command{
			Use: "transfer [ID]", Short: "Transfer leadership to another controller", Args: cobra.MaximumNArgs(1),
			RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
				answer, err := c.Cluster().TransferLeadership(ctx, &greylagv1.TransferLeadershipRequest{Id: first(args)})
				return t.Printed(err, "leader %s", answer.GetLeader())
			}),
		},
		t.token(), t.snapshot(), t.recover(), t.upgradeCheck(),
	)
	return all
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (t commands) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the controllers' status; needs no leader",
		Long: `Shows the status of the controllers as the leader sees it; without a leader, as any controller
that responds sees it. With --controller, shows the log position of that controller.`,
		Args: cobra.NoArgs, RunE: t.On(t.status),
	}
	t.AddControllerFlag(c)
	return c
}

func (t commands) status(ctx context.Context, c ui.Cluster, _ []string) error {
	s, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	if t.Controller == "" {
		s = leaderSays(ctx, c, s)
	}
	if t.JSON {
		return t.WriteJSON(statusOf(s))
	}
	leader := "none"
	if s.Leader != "" {
		leader = memberText(s, s.Leader)
	}
	low := ""
	if s.DiskLow {
		low = "almost full"
	}
	if err := t.Facts("cluster "+s.Cluster, [][2]string{
		{"id", s.ClusterId}, {"leader", leader}, {"answered by", memberText(s, s.Id)}, {"version", s.Version}, {"term", fmt.Sprint(s.Term)},
		{"index", indexOf(s)}, {"state", stateOf(s)}, {"disk", low},
		{"jobs", jobsOf(s)}, {"archive", s.ArchiveMissing}, {"restored", restored(s)}, {"CA rotation", wire.Word(s.CaRotation)},
	}); err != nil {
		return err
	}
	table := ui.Table{Head: []string{"HOST", "MEMBER", "ADDRESS", "ROLE", "LAST CONTACT", "INDEX"}, Right: "llllrr", Wide: []int{2, 0}}
	for _, m := range s.Members {
		role := "learner"
		switch {
		case m.Leader:
			role = "leader"
		case m.Voter:
			role = "voter"
		}
		table.Rows = append(table.Rows, []string{cmp.Or(m.Name, "-"), m.Id, m.Address, role, lastContact(m, s), match(m)})
	}
	if err := t.WriteTable(table); err != nil {
		return err
	}
	if problem, advice := doctor.HeldUp(s); problem != "" {
		t.Warn(problem + ": " + advice)
	}
	if s.Leader == "" {
		t.Complain("there is no leader", "an election may be in progress, which takes some seconds; after that there is no quorum: check which controllers are running")
		return ui.Exit(ui.Unavailable)
	}
	return nil
}

// memberText formats the host name and the ID of a member.
func memberText(s *greylagv1.GetStatusResponse, id string) string {
	for _, m := range s.Members {
		if m.Id == id && m.Name != "" {
			return m.Name + " " + id
		}
	}
	return id
}

// nothingApplied reports whether the answering controller has applied nothing of its log: it has
// just started, and only a leader can tell which entries are committed.
func nothingApplied(s *greylagv1.GetStatusResponse) bool {
	return s.Leader == "" && s.AppliedIndex == 0
}

// indexOf returns the commit and applied index of the answering controller.
func indexOf(s *greylagv1.GetStatusResponse) string {
	if nothingApplied(s) {
		return "unknown until a leader is elected"
	}
	return fmt.Sprintf("%d committed, %d applied", s.CommitIndex, s.AppliedIndex)
}

// stateOf returns the digest of its state.
func stateOf(s *greylagv1.GetStatusResponse) string {
	if nothingApplied(s) {
		return ""
	}
	return s.Digest
}

// jobsOf returns the number of jobs that the answering controller knows.
func jobsOf(s *greylagv1.GetStatusResponse) string {
	if nothingApplied(s) {
		return "unknown until a leader is elected"
	}
	return fmt.Sprintf("%d active, %d finished", s.ActiveJobs, s.FinishedJobs)
}

// leaderTime is how long the leader may take to report what it alone knows.
const leaderTime = 2 * time.Second

// leaderSays returns the leader's answer if another controller's answer names it, as the client
// asks it next; the other's if the leader does not answer.
func leaderSays(ctx context.Context, c ui.Cluster, s *greylagv1.GetStatusResponse) *greylagv1.GetStatusResponse {
	if s.Leader == "" || s.Leader == s.Id {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	if direct, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{}); err == nil && direct.Id == direct.Leader {
		return direct
	}
	return s
}

// lastContact returns when a member last answered the leader, which alone knows it.
func lastContact(m *greylagv1.Member, s *greylagv1.GetStatusResponse) string {
	switch {
	case m.Leader || s.Id != s.Leader:
		return "-"
	case m.LastContact == nil:
		return "not yet"
	}
	return m.LastContact.AsDuration().Round(time.Millisecond).String()
}

// match returns the last entry that a member is known to have.
func match(m *greylagv1.Member) string {
	if m.MatchIndex == 0 {
		return "-"
	}
	return fmt.Sprint(m.MatchIndex)
}

func (t commands) token() *cobra.Command {
	var role, name string
	var valid time.Duration
	var replace bool
	var uses uint32
	flags := map[string]*bool{}
	c := &cobra.Command{
		Use: "token", Short: "Create a join token", Args: cobra.NoArgs,
		Long: "Creates a token for gctl join and prints TOKEN@HOST:PORT. One host can join with\nit, or as many as --uses allows. It is a secret: its holder can join in that role\nuntil it expires.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			for word, set := range flags {
				if *set {
					role = word
				}
			}
			kind := wire.Enum[greylagv1.HostRole](role)
			if kind == 0 {
				return &ui.UsageError{Problem: fmt.Sprintf("unknown role %q", role), Advice: "write node, controller or auth"}
			}
			return t.mint(ctx, c, &greylagv1.CreateTokenRequest{Role: kind, Name: name, Replace: replace, Valid: durationpb.New(valid), Uses: uses})
		}),
	}
	c.Flags().StringVar(&role, "role", "node", "node, controller or auth (a login node)")
	for _, name := range []string{"node", "controller", "auth"} {
		flags[name] = c.Flags().Bool(name, false, "the same as --role "+name)
	}
	c.MarkFlagsMutuallyExclusive("role", "node", "controller", "auth")
	c.Flags().Uint32Var(&uses, "uses", 1, "number of nodes or login nodes that can join with it, at most 1000")
	c.Flags().DurationVar(&valid, "valid", time.Hour, "validity")
	c.Flags().StringVar(&name, "name", "", "host name that the token is for [any unused name]")
	c.Flags().BoolVar(&replace, "replace", false, "allow a name in use and revoke its existing certificates")
	return c
}

func (t commands) mint(ctx context.Context, c ui.Cluster, request *greylagv1.CreateTokenRequest) error {
	if request.Valid.AsDuration() <= 0 {
		return &ui.UsageError{Problem: "the token would already be expired", Advice: "write --valid 1h, for example"}
	}
	argument, answer, err := setup.CreateToken(ctx, c, request)
	if err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(struct {
			Token   string     `json:"token"`
			Join    string     `json:"join"`
			Expires *time.Time `json:"expires"`
		}{answer.Token, argument, tool.Timestamp(answer.Expires)})
	}
	t.Note("on the joining host, as root, until %s: gctl join TOKEN", t.FormatTime(answer.Expires))
	return t.Printed(nil, "%s", argument)
}

// restored returns when the cluster was restored from a backup; "" for never.
func restored(s *greylagv1.GetStatusResponse) string {
	if s.Restored == nil {
		return ""
	}
	return fmt.Sprintf("%s, from the backup of %s", s.Restored.At.AsTime().Local().Format(time.DateTime), s.Restored.Backup.AsTime().Local().Format(time.DateTime))
}

const snapshotLong = `Writes a backup that gctld restore turns into a working cluster: the state,
and the script and environment of every job that has not ended. Without
--with-history it leaves out the history: finished jobs beyond the newest
65,536, their scripts, the journal of credits and the audit journal.

The file contains scripts and environments of all users: keep it private. It
does not contain pki_dir, which a restore needs: back that up separately.`

func (t commands) snapshot() *cobra.Command {
	var path string
	var history bool
	var keep int
	c := &cobra.Command{
		Use: "snapshot -o FILE", Short: "Back up the cluster to a file", Long: snapshotLong, Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			if keep < 0 || keep > 0 && path == "-" {
				return &ui.UsageError{Problem: "--keep needs a number of files and -o FILE", Advice: "write --keep 14 -o /backup/greylag-$(date +%F), for example"}
			}
			if err := t.save(ctx, c, path, history); err != nil || keep == 0 {
				return err
			}
			return t.dropBackups(path, keep)
		}),
	}
	c.Flags().StringVarP(&path, "output", "o", "", "output file; - is standard output")
	c.Flags().BoolVar(&history, "with-history", false, "include finished jobs, their scripts and the journals")
	c.Flags().IntVar(&keep, "keep", 0, "keep this number of backups in the directory, and delete older files whose names differ from FILE only in digits [keep all]")
	tool.Must(c.MarkFlagRequired("output"))
	return c
}

// digits are replaced when names of backups are compared: FILE contains a date.
var digits = regexp.MustCompile("[0-9]+")

// dropBackups deletes the oldest backups in the directory of a new one, by their times of change, and
// never the new one.
func (t commands) dropBackups(path string, keep int) error {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	var others []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && info.Name() != name && digits.ReplaceAllString(info.Name(), "#") == digits.ReplaceAllString(name, "#") {
			others = append(others, info)
		}
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, old := range others[min(keep-1, len(others)):] {
		if err := os.Remove(filepath.Join(dir, old.Name())); err != nil {
			return err
		}
		t.Note("deleted %s", filepath.Join(dir, old.Name()))
	}
	return nil
}

// save writes a backup: FILE is complete or does not change.
func (t commands) save(ctx context.Context, c ui.Cluster, path string, history bool) error {
	if path == "-" {
		got, err := pump(ctx, c, t.Stdout, history)
		if err == nil {
			t.warnBackup(got, history)
		}
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600: it holds scripts and environments
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed, as intended
	got, err := pump(ctx, c, f, history)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	t.warnBackup(got, history)
	return t.Printed(nil, "saved %d bytes to %s", got.bytes, path)
}

// warnBackup prints on standard error what a backup lacks.
func (t commands) warnBackup(got saved, history bool) {
	if !history {
		t.Note("history left out: a cluster restored from this file has only the newest 65,536 finished jobs, without their scripts, and its journals begin at the restore; use --with-history to include the history")
	}
	if got.missing > 0 {
		t.Note("%d scripts or environments of jobs are on no controller; these jobs cannot run: submit them again", got.missing)
	}
}

// saved is the result of a backup.
type saved struct {
	bytes   int64
	missing uint32
}

func pump(ctx context.Context, c ui.Cluster, w io.Writer, history bool) (got saved, err error) {
	stream, err := c.Cluster().StreamSnapshot(ctx, &greylagv1.StreamSnapshotRequest{History: history})
	if err != nil {
		return got, err
	}
	defer stream.Close()
	for stream.Receive() {
		n, err := w.Write(stream.Msg().Data)
		got.bytes += int64(n)
		got.missing += stream.Msg().MissingContents
		if err != nil {
			return got, err
		}
	}
	return got, stream.Err()
}

func (t commands) recover() *cobra.Command {
	return &cobra.Command{
		Use: "recover [ARGUMENTS]", Short: "Recover after the permanent loss of a majority; on a stopped controller",
		Long:               "Runs gctld recover with the same arguments, on the host of a remaining, stopped controller.",
		DisableFlagParsing: true, // gctld's, --help included
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := tool.FindController()
			if err != nil {
				return err
			}
			return syscall.Exec(path, append([]string{path, "recover"}, args...), t.Environ)
		},
	}
}
