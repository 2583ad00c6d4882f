package control

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
)

func (t *tool) cert() *cobra.Command {
	all := &cobra.Command{
		Use: "cert", Short: "List and revoke certificates of hosts", GroupID: whole, Args: choose,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	list := &cobra.Command{
		Use: "list", Short: "List the certificates that the cluster issued", Args: cobra.NoArgs,
		Long: "Lists certificates that have not expired, and revocations. A renewed certificate does not end\nthe previous one, which stays valid until it expires.",
		RunE: t.on(t.listCertificates),
	}
	var request greylagv1.RevokeRequest
	revoke := &cobra.Command{
		Use: "revoke ROLE/NAME", Short: "Refuse all certificates of a host", Args: cobra.ExactArgs(1),
		Long: `Revokes every certificate of node/NAME, controller/NAME or auth/NAME (a login host) that was
issued until now. Each controller enforces it once it has applied the entry. The host comes back
only by gctl join with a new token.`,
		RunE: t.on(func(ctx context.Context, c cli.Cluster, args []string) error {
			role, name, found := strings.Cut(args[0], "/")
			if !found || role != "node" && role != "controller" && role != "auth" || name == "" {
				return &cli.UsageError{Problem: "not node/NAME, controller/NAME or auth/NAME: " + args[0], Advice: "gctl cert list shows the names"}
			}
			request.RequestId, request.Role, request.Name = client.NewRequestID(), role, name
			_, err := c.Cluster().Revoke(ctx, &request)
			return t.said(err, "revoked the certificates of %s", args[0])
		}),
	}
	revoke.Flags().StringVar(&request.Reason, "reason", "", "why; it is shown and audited")
	revoke.Flags().BoolVar(&request.Force, "force", false, "even if too few controllers remain for a majority")
	must(revoke.MarkFlagRequired("reason"))
	all.AddCommand(list, revoke)
	return all
}

// certificateRow is one line of gctl cert list.
type certificateRow struct {
	Role      string     `json:"role"`
	Name      string     `json:"name"`
	Serial    string     `json:"serial,omitempty"`
	Issued    *time.Time `json:"issued,omitempty"`
	Expires   *time.Time `json:"expires,omitempty"`
	Origin    string     `json:"origin,omitempty"`
	Revoked   bool       `json:"revoked"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	RevokedBy string     `json:"revoked_by,omitempty"`
	Reason    string     `json:"reason,omitempty"`
}

func certificateRows(holders []*greylagv1.CertificateHolder) []certificateRow {
	rows := []certificateRow{}
	for _, h := range holders {
		for _, c := range h.Certificates {
			row := certificateRow{Role: h.Role, Name: h.Name, Serial: c.Serial, Issued: stamp(c.Issued), Expires: stamp(c.Expires), Origin: c.Origin, Revoked: c.Revoked}
			if c.Revoked {
				row.RevokedAt, row.RevokedBy, row.Reason = stamp(h.Revoked), h.RevokedBy, h.Reason
			}
			rows = append(rows, row)
		}
		if len(h.Certificates) == 0 && h.Revoked != nil {
			rows = append(rows, certificateRow{Role: h.Role, Name: h.Name, Revoked: true, RevokedAt: stamp(h.Revoked), RevokedBy: h.RevokedBy, Reason: h.Reason})
		}
	}
	return rows
}

func (t *tool) listCertificates(ctx context.Context, c cli.Cluster, _ []string) error {
	answer, err := c.Cluster().Certificates(ctx, &greylagv1.CertificatesRequest{})
	if err != nil {
		return err
	}
	rows := certificateRows(answer.Holders)
	if t.json {
		return t.WriteJSON(rows)
	}
	date := func(at *time.Time) string {
		if at == nil {
			return "-"
		}
		return at.In(t.Now().Location()).Format(time.DateOnly)
	}
	table := cli.Table{Head: []string{"HOLDER", "SERIAL", "ISSUED", "EXPIRES", "ORIGIN", "REVOKED"}, Right: "llllll", Wide: []int{0}}
	for _, r := range rows {
		revoked := "-"
		if r.Revoked {
			revoked = strings.TrimSpace(date(r.RevokedAt) + " " + r.RevokedBy)
		}
		table.Rows = append(table.Rows, []string{r.Role + "/" + r.Name, r.Serial[:min(len(r.Serial), 8)], date(r.Issued), date(r.Expires), r.Origin, revoked})
	}
	return t.WriteTable(table)
}
