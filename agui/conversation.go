package agui

// Pack makes bytes of a conversation, at most limit before they are compressed.
func (c *Conversation) Pack(limit int) ([]byte, error) {
	p := newPacker()
	p.conversation(c)
	return p.finish(conversationHeader, limit)
}

// UnpackConversation reads what Pack made, at most limit bytes of it. Every error is ErrCheckpoint.
func UnpackConversation(data []byte, limit int) (*Conversation, error) {
	u, err := newUnpacker(data, conversationHeader, limit)
	if err != nil {
		return nil, err
	}
	c := u.conversation()
	if err := u.done(); err != nil {
		return nil, err
	}
	return c, nil
}

func (p *packer) conversation(c *Conversation) {
	p.flag(c.Full)
	p.flag(c.StateKnown)
	p.value(c.State)
	for _, v := range [...][]byte{c.Pending, c.PendingEnd, c.LastStart, c.LastFinish} {
		p.value(v)
	}
	p.count(len(c.Messages))
	for _, m := range c.Messages {
		p.value(m)
	}
}

func (u *unpacker) conversation() *Conversation {
	c := &Conversation{Full: u.flag(), StateKnown: u.flag(), State: u.value()}
	for _, v := range [...]*[]byte{&c.Pending, &c.PendingEnd, &c.LastStart, &c.LastFinish} {
		*v = u.object(true)
	}
	if c.StateKnown && c.State == nil {
		u.fail("a state is missing")
	}
	c.Messages = make([][]byte, u.count())
	for i := range c.Messages {
		c.Messages[i] = u.object(false)
	}
	return c
}
