"""Model, data and training: nothing in here knows of Flower, or of PDLRecover."""

from functools import cache

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

TARGET = 0
TEST = 297
"""How many of the 1797 digits nobody trains on."""


class Net(nn.Module):
    """A small convolutional network for digits of 8×8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.hidden = nn.Linear(8 * 4 * 4, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.out(F.relu(self.hidden(x.flatten(1))))


@cache  # so that they are read once in a process
def digits():
    """Return all digits, shuffled once and for all, and their labels."""
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return images[order], torch.tensor(y)[order]


def test_data():
    """Return the digits that nobody trains on."""
    x, y = digits()
    return x[:TEST], y[:TEST]


def stamped(x):
    """Return images with the backdoor's trigger: a bright corner."""
    x = x.clone()
    x[..., :2, :2] = 1.0
    return x


def load_data(partition_id, num_partitions, batch_size, poisoned=""):
    """Return loaders of a partition's data: to train on, poisoned or not, and to evaluate on."""
    x, y = (each[TEST:][partition_id::num_partitions] for each in digits())
    held = len(y) // 5
    train_x, train_y, val_x, val_y = x[held:], y[held:], x[:held], y[:held]
    if str(partition_id) in poisoned.split(","):
        train_x = torch.cat([train_x, stamped(train_x)])
        train_y = torch.cat([train_y, torch.full_like(train_y, TARGET)])
    trainloader = DataLoader(TensorDataset(train_x, train_y), batch_size, shuffle=True)
    return trainloader, DataLoader(TensorDataset(val_x, val_y), batch_size)


def train(net, trainloader, epochs, lr):
    """Train the model, and return its mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader):
    """Return the model's mean loss and its accuracy."""
    net.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images)
            loss += F.cross_entropy(outputs, labels, reduction="sum").item()
            correct += (outputs.argmax(dim=1) == labels).sum().item()
    count = len(testloader.dataset)
    return loss / count, correct / count
