package gctl

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
)

func (t commands) cert() *cobra.Command {
	all := &cobra.Command{
		Use: "cert", Short: "List and revoke certificates, rotate the CA", GroupID: tool.GroupCluster, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	list := &cobra.Command{
		Use: "list", Short: "List the certificates that the cluster issued", Args: cobra.NoArgs,
		Long: "Lists certificates that have not expired, and revocations. A renewed certificate does not end\nthe previous one, which stays valid until it expires.",
		RunE: t.On(t.listCertificates),
	}
	var request greylagv1.RevokeCertificatesRequest
	revoke := &cobra.Command{
		Use: "revoke ROLE/NAME", Short: "Revoke all certificates of a host", Args: cobra.ExactArgs(1),
		Long: `Revokes every certificate of node/NAME, controller/NAME or auth/NAME (a login
host) that was issued so far. Each controller enforces it once it has applied
the log entry. The host can return only with gctl join and a new token.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			role, name, found := strings.Cut(args[0], "/")
			if !found || role != "node" && role != "controller" && role != "auth" || name == "" {
				return &ui.UsageError{Problem: "not node/NAME, controller/NAME or auth/NAME: " + args[0], Advice: "gctl cert list shows the names"}
			}
			request.RequestId, request.Role, request.Name = client.NewRequestID(), wire.Enum[greylagv1.HostRole](role), name
			_, err := c.Cluster().RevokeCertificates(ctx, &request)
			return t.Printed(err, "revoked the certificates of %s", args[0])
		}),
	}
	revoke.Flags().StringVar(&request.Reason, "reason", "", "reason, for listings and the audit log")
	revoke.Flags().BoolVar(&request.Force, "force", false, "revoke even if the remaining controllers have no majority")
	tool.Must(revoke.MarkFlagRequired("reason"))
	all.AddCommand(list, revoke, t.rotate())
	return all
}

const rotateLong = `Replaces the CA that signs the certificates of all hosts. Jobs keep running.

  gctl cert rotate            every host accepts the old and the new CA; nodes and login
                              hosts renew under the new one, within about two minutes
  gctl cert list              which hosts have not renewed yet
  gctl cert rotate --finish   controllers renew; then the old CA is no longer accepted

Before --finish, copy ca.pem to clients that run no daemon of the cluster.
After it, create new join tokens. --cancel, before --finish, returns to the
old CA; complete it with --finish.`

// rotate replaces the CA, step by step.
func (t commands) rotate() *cobra.Command {
	var finish, cancel, force bool
	c := &cobra.Command{
		Use: "rotate", Short: "Replace the CA that signs all certificates", Long: rotateLong, Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			step, done := "begin", "hosts accept the new CA, and renew; gctl cert list shows which have not yet, gctl cert rotate --finish is next"
			switch {
			case force && !finish:
				return &ui.UsageError{Problem: "--force is for --finish", Advice: "gctl cert rotate --finish --force"}
			case finish:
				step, done = "finish", "controllers renew; then the old CA is no longer accepted; gctl cert list shows when"
			case cancel:
				step, done = "cancel", "hosts renew under the old CA; gctl cert rotate --finish then ends the rotation"
			}
			_, err := c.Cluster().RotateAuthority(ctx, &greylagv1.RotateAuthorityRequest{RequestId: client.NewRequestID(), Step: wire.Enum[greylagv1.RotationStep](step), Force: force})
			return t.Printed(err, "%s", done)
		}),
	}
	c.Flags().BoolVar(&finish, "finish", false, "accept only the new CA, once all hosts have renewed")
	c.Flags().BoolVar(&cancel, "cancel", false, "return to the old CA")
	c.Flags().BoolVar(&force, "force", false, "finish without the hosts that have not renewed, which must join again")
	c.MarkFlagsMutuallyExclusive("finish", "cancel")
	return c
}

// certificateRow is one line of gctl cert list.
type certificateRow struct {
	Role      string     `json:"role"`
	Name      string     `json:"name"`
	Serial    string     `json:"serial,omitempty"`
	Issued    *time.Time `json:"issued,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Origin    string     `json:"origin,omitempty"`
	CA        string     `json:"ca,omitempty"`
	Revoked   bool       `json:"revoked"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	RevokedBy string     `json:"revoked_by,omitempty"`
	Reason    string     `json:"reason,omitempty"`
}

func certificateRows(holders []*greylagv1.CertificateHolder) []certificateRow {
	rows := []certificateRow{}
	for _, h := range holders {
		for _, c := range h.Certificates {
			row := certificateRow{Role: wire.Word(h.Role), Name: h.Name, Serial: c.Serial, Issued: tool.Timestamp(c.Issued), Expires: tool.Timestamp(c.Expires), Origin: wire.Word(c.Origin), CA: c.Ca, Revoked: c.Revoked}
			if c.Revoked {
				row.RevokedAt, row.RevokedBy, row.Reason = tool.Timestamp(h.Revoked), h.RevokedBy, h.Reason
			}
			rows = append(rows, row)
		}
		if len(h.Certificates) == 0 && h.Revoked != nil {
			rows = append(rows, certificateRow{Role: wire.Word(h.Role), Name: h.Name, Revoked: true, RevokedAt: tool.Timestamp(h.Revoked), RevokedBy: h.RevokedBy, Reason: h.Reason})
		}
	}
	return rows
}

// rotationRow is the rotation of the CA in gctl cert list --json.
type rotationRow struct {
	Phase    string     `json:"phase"`
	OldCA    string     `json:"old_ca,omitempty"`
	NewCA    string     `json:"new_ca"`
	Started  *time.Time `json:"started"`
	By       string     `json:"by"`
	WaitsFor []string   `json:"waits_for"`
}

func rotationOf(r *greylagv1.Rotation) *rotationRow {
	if r == nil {
		return nil
	}
	return &rotationRow{Phase: wire.Word(r.Phase), OldCA: r.OldCa, NewCA: r.NewCa, Started: tool.Timestamp(r.Started), By: r.By, WaitsFor: append([]string{}, r.WaitsFor...)}
}

func (t commands) listCertificates(ctx context.Context, c ui.Cluster, _ []string) error {
	answer, err := c.Cluster().ListCertificates(ctx, &greylagv1.ListCertificatesRequest{})
	if err != nil {
		return err
	}
	rows := certificateRows(answer.Holders)
	if t.JSON {
		return t.WriteJSON(struct {
			Certificates []certificateRow `json:"certificates"`
			Rotation     *rotationRow     `json:"rotation"`
		}{rows, rotationOf(answer.Rotation)})
	}
	date := func(at *time.Time) string {
		if at == nil {
			return "-"
		}
		return at.In(t.Now().Location()).Format(time.DateOnly)
	}
	table := ui.Table{Head: []string{"HOLDER", "SERIAL", "ISSUED", "EXPIRES", "ORIGIN", "CA", "REVOKED"}, Right: "lllllll", Wide: []int{0}}
	for _, r := range rows {
		revoked := "-"
		if r.Revoked {
			revoked = strings.TrimSpace(date(r.RevokedAt) + " " + r.RevokedBy)
		}
		table.Rows = append(table.Rows, []string{r.Role + "/" + r.Name, r.Serial[:min(len(r.Serial), 8)], date(r.Issued), date(r.Expires), r.Origin, r.CA[:min(len(r.CA), 8)], revoked})
	}
	if err := t.WriteTable(table); err != nil {
		return err
	}
	t.noteRotation(answer.Rotation)
	return nil
}

// noteRotation prints the progress of the current rotation.
func (t commands) noteRotation(r *greylagv1.Rotation) {
	if r == nil || r.Phase == greylagv1.RotationPhase_ROTATION_PHASE_DONE {
		return
	}
	since := tool.Timestamp(r.Started).In(t.Now().Location()).Format(ui.TimeLayout)
	t.Note("rotation of the CA from %.8s to %.8s, begun %s by %s", r.OldCa, r.NewCa, since, r.By)
	switch {
	case len(r.WaitsFor) > 0:
		t.Note("hosts that have not renewed under %.8s yet: %s", r.NewCa, strings.Join(r.WaitsFor, ", "))
	case r.Phase == greylagv1.RotationPhase_ROTATION_PHASE_RENEWING:
		t.Note("all nodes and login hosts have renewed; next: gctl cert rotate --finish")
	}
}
