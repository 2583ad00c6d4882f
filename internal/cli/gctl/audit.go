package gctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/wire"
)

// auditJSON is one entry, one line of JSON each.
type auditJSON struct {
	Seq     uint64     `json:"seq"`
	Index   uint64     `json:"index"`
	At      *time.Time `json:"at"`
	User    string     `json:"user,omitempty"`
	Role    string     `json:"role,omitempty"`
	Source  string     `json:"source,omitempty"`
	Kind    string     `json:"kind"`
	Text    string     `json:"text"`
	Refused bool       `json:"refused,omitempty"`
	Hash    string     `json:"hash"`
}

func (t commands) audit() *cobra.Command {
	var from, to, kind string
	request := &greylagv1.StreamAuditRequest{}
	c := &cobra.Command{
		Use: "audit", Short: "Show changes and scheduler decisions", Args: cobra.NoArgs, GroupID: tool.GroupCluster,
		Long: `Prints the audit journal, oldest first: requests of users and administrators,
refusals, starts by the scheduler, and nodes declared down. Entries of the
cluster itself have no user. With --json each entry is one line. gctl verify
checks that the journal was not altered.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) (err error) {
			if request.From, err = t.ParseTime(from); err != nil {
				return err
			}
			if request.Before, err = t.ParseTime(to); err != nil {
				return err
			}
			if request.Kind, request.Signal = wire.AuditKind(kind); request.Kind == 0 && kind != "" {
				return &ui.UsageError{Problem: fmt.Sprintf("the audit journal has no kind %q", kind), Advice: "the kinds are " + strings.Join(command.AuditKinds(), ", ")}
			}
			return t.printAudit(ctx, c, request)
		}),
	}
	c.Flags().StringVarP(&from, "from", "S", "", "start time [the beginning]")
	c.Flags().StringVarP(&to, "to", "E", "", "end time, exclusive [now]")
	c.Flags().StringVarP(&request.User, "user", "u", "", "only changes by this user")
	c.Flags().StringVar(&kind, "kind", "", "only this kind, such as submit, plan or policy")
	c.Flags().StringVar(&request.Contains, "grep", "", "only entries that contain this text")
	return c
}

func (t commands) printAudit(ctx context.Context, c ui.Cluster, request *greylagv1.StreamAuditRequest) error {
	stream, err := c.Cluster().StreamAudit(ctx, request)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		e := stream.Msg()
		kind := wire.AuditKindWord(e.Kind, e.Signal)
		if t.JSON {
			if err := t.WriteJSONLine(auditJSON{
				e.Seq, e.Index, tool.Timestamp(e.At), e.User, wire.Word(e.Role), e.Source, kind, e.Text, e.Refused, fmt.Sprintf("%x", e.Hash),
			}); err != nil {
				return err
			}
			continue
		}
		who, mark := e.User, ""
		if who == "" {
			who = "-"
		}
		if e.Refused {
			mark = "refused: "
		}
		from := ""
		if strings.HasPrefix(e.Source, "job ") { // a command inside a job; other sources are addresses
			from = ", from " + ui.Printable(e.Source)
		}
		if err := t.Printed(nil, "%s %s %s %s%s%s", t.FormatTime(e.At), who, kind, mark, ui.Printable(e.Text), from); err != nil {
			return err
		}
	}
	return stream.Err()
}
