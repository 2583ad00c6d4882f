package command

import "github.com/greylag/greylag/internal/codec"

// RejoinHint describes how the host of a removed controller rejoins under a new id.
const RejoinHint = "make a token with gctl cluster token --controller, empty the host's data_dir and pki_dir, and run there: gctl join TOKEN@CONTROLLER"

// RecordMember records which host a member of the log is. It is refused for a retired
// member id. Recording a known member replaces what was recorded.
type RecordMember struct {
	Actor Actor
	ID    string // of the member in the log
	Name  string // of its host, from the certificate with which it authenticated
}

// RetireMember bars a member id permanently.
type RetireMember struct {
	Actor Actor
	ID    string
	Name  string // of its host; "": as it was recorded
}

func (*RecordMember) kind() kind { return kindRecordMember }
func (*RetireMember) kind() kind { return kindRetireMember }

func recordMemberFields(c *codec.Coder, x *RecordMember) {
	codec.Record(c, &x.Actor, actorFields)
	codec.String(c, &x.ID)
	codec.String(c, &x.Name)
}

func retireMemberFields(c *codec.Coder, x *RetireMember) {
	codec.Record(c, &x.Actor, actorFields)
	codec.String(c, &x.ID)
	codec.String(c, &x.Name)
}
