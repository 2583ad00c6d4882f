package server

import (
	"cmp"
	"context"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
)

// maxPolicy bounds a policy's text.
const maxPolicy = 256 << 10

// GetPolicy returns the policy in force as a file that Apply accepts.
func (s *clusterService) GetPolicy(ctx context.Context, p *greylagv1.GetPolicyRequest) (*greylagv1.GetPolicyResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	text, err := clusterdoc.WritePolicy(v.Policy())
	if err != nil {
		return nil, err
	}
	return &greylagv1.GetPolicyResponse{Toml: string(text), Version: v.Policy().Version, AsOf: asOf}, nil
}

// SetPolicy replaces the policy, or with DryRun only returns what would change.
func (s *clusterService) SetPolicy(ctx context.Context, p *greylagv1.SetPolicyRequest) (*greylagv1.SetPolicyResponse, error) {
	c := call.From(ctx)
	if len(p.GetToml()) > maxPolicy {
		return nil, call.Refuse(command.InvalidArgument, "", "the policy has %d bytes: at most %d", len(p.GetToml()), maxPolicy)
	}
	if strings.TrimSpace(p.GetToml()) == "" { // every key would be reset to its default
		return nil, call.Refuse(command.InvalidArgument, "start from the output of gctl show policy", "the policy is empty")
	}
	name := cmp.Or(p.GetName(), "policy")
	next, err := clusterdoc.ReadPolicy(name, []byte(p.GetToml()))
	if err != nil {
		return nil, err
	}
	if auth.RoleOf(&next, c.User.Identity) < command.RoleAdmin {
		return nil, call.Refuse(command.InvalidArgument, "keep yourself in admins; another administrator can remove you",
			"this policy removes %s from admins, so %[1]s could not undo it", c.User.User)
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, q := range next.QOS {
		if refusal := v.CheckSupported(q.Limits); refusal != nil {
			return nil, refusal
		}
	}
	now := v.Policy()
	before, err := clusterdoc.WritePolicy(now)
	if err != nil {
		return nil, err
	}
	after, err := clusterdoc.WritePolicy(&next)
	if err != nil {
		return nil, err
	}
	response := &greylagv1.SetPolicyResponse{Diff: diff(string(before), string(after)), Version: now.Version}
	for _, w := range clusterdoc.PlacePolicy(name, []byte(p.GetToml()), audit.PolicyWarnings(v, &next)) {
		response.Warnings = append(response.Warnings, w.String())
	}
	if p.GetExpectVersion() != 0 && p.GetExpectVersion() != now.Version {
		return nil, call.Refuse(command.Conflict, "merge your change into gctl show policy, or overwrite it: gctl apply --force", "the policy is at version %d, not %d: it was changed meanwhile", now.Version, p.GetExpectVersion())
	}
	if p.GetDryRun() {
		return response, nil
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	done, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.ApplyPolicy{
		Request: id, Actor: c.Actor(), Policy: next, Expect: p.GetExpectVersion(),
	})
	if err != nil {
		return nil, err
	}
	response.Version = done.Version
	return response, nil
}

// maxDiff bounds the lines of one text times those of the other.
const maxDiff = 4 << 20

// diff shows how one text becomes another, line by line: removed lines after "-", added lines after
// "+". "" means no difference. O(lines²); beyond maxDiff both texts completely.
func diff(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	if before == after {
		return ""
	}
	if len(a)*len(b) > maxDiff {
		return "-" + strings.Join(a, "\n-") + "\n+" + strings.Join(b, "\n+") + "\n"
	}
	common := make([][]int32, len(a)+1) // longest common subsequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out.WriteString("-" + a[i] + "\n")
			i++
		default:
			out.WriteString("+" + b[j] + "\n")
			j++
		}
	}
	return out.String()
}
