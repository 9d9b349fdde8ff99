"""RG losses: squared approximations of the softmax loss."""
