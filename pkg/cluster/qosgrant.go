package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// GrantedQOS returns the QOS granted to the jobs of an association: its own list, else that of the
// nearest account that has one. It is nil when there is no such list, as in a nil tree. O(depth +
// log n).
func (t *AccountTree) GrantedQOS(key AssociationKey) []string {
	if t == nil || !t.Granting {
		return nil
	}
	for _, n := range t.Up(t.Find(key)) {
		if list := n.qos(); len(list) > 0 {
			return list
		}
	}
	return nil
}

// qos is the node's own list.
func (n *AccountNode) qos() []string {
	if n.User != nil {
		return n.User.QOS
	}
	return n.Account.QOS
}

// OpenQOS returns the names of the QOS that need no grant, in the policy's order.
func (p *Policy) OpenQOS() (names []string) {
	for i := range p.QOS {
		if p.QOS[i].Open {
			names = append(names, p.QOS[i].Name)
		}
	}
	return names
}

// UsableQOS returns the QOS that jobs of an association may use: those granted to it, or without a
// list the open ones.
func (p *Policy) UsableQOS(t *AccountTree, key AssociationKey) []string {
	if list := t.GrantedQOS(key); list != nil {
		return list
	}
	return p.OpenQOS()
}

// MayUseQOS reports whether jobs of a specification may use its QOS: it is usable for their
// association, or an operator chose it. It is true for a QOS that the policy no longer has.
// O(QOS + depth + log n).
func (p *Policy) MayUseQOS(t *AccountTree, spec *JobSpec) bool {
	if spec.QOSByOperator || spec.QOS == "" {
		return true
	}
	at := slices.IndexFunc(p.QOS, func(q QOS) bool { return q.Name == spec.QOS })
	if at < 0 {
		return true
	}
	if list := t.GrantedQOS(spec.Association()); list != nil {
		return slices.Contains(list, spec.QOS)
	}
	return p.QOS[at].Open
}

// GrantCommand returns the command that grants the QOS of a specification, and who can run it.
func (p *Policy) GrantCommand(t *AccountTree, spec *JobSpec) string {
	if spec.Account == "" || t == nil {
		return fmt.Sprintf("an operator can grant it in an account: gctl account add ACCOUNT user=%s qos=%s; or an administrator can open it to all users: open = true in the policy",
			spec.Owner.User, strings.Join(append(p.OpenQOS(), spec.QOS), ","))
	}
	key := t.Resolve(spec.Association())
	where := ""
	if key.Partition != "" {
		where = " partition=" + key.Partition
	}
	return fmt.Sprintf("an operator can grant it: gctl account modify %s user=%s%s qos+=%s", key.Account, key.User, where, spec.QOS)
}

// SameGrants reports whether two trees grant the same QOS to the same associations. O(1) when
// neither has a list or they are one tree, else O(accounts + users).
func SameGrants(a, b *AccountTree) bool {
	if a == b || (a == nil || !a.Granting) && (b == nil || !b.Granting) {
		return true
	}
	return a != nil && b != nil && slices.EqualFunc(a.Nodes, b.Nodes, func(x, y AccountNode) bool {
		return x.Parent == y.Parent && x.name() == y.name() && slices.Equal(x.qos(), y.qos())
	})
}

// name is the unique name of a node within its tree.
func (n *AccountNode) name() AssociationKey {
	if n.User != nil {
		return n.User.AssociationKey
	}
	return AssociationKey{Account: n.Account.Name}
}
